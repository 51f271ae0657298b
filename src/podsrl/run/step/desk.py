"""The desk: all groups that are under way, from the ask to the verdict. It knows no weights.

    ask ──▶ its rollouts are generated (`under_way.py`) ──▶ judged ──▶ asked again, in rounds ──▶ taken for a step

`take` asks the steps that may be under way, waits for the groups of the oldest, and judges them; `order` says how many
steps are asked, which groups make one, and what becomes of the others when new weights come. With several processes
each generates and scores a share of the groups, and all of them hold all groups of a step afterwards.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from itertools import chain
from typing import Any

from podsrl.config.schema import OrderConfig
from podsrl.control import Ask, Budget, View
from podsrl.errors import UsageError, short
from podsrl.generate import Generator, Kind, Sampling, Watch, abilities_of
from podsrl.lib.stages import EXCHANGE
from podsrl.policy import prompt_ids, replies_ids
from podsrl.run.step.agreement import check_same_asks
from podsrl.run.step.closing import Closing
from podsrl.run.step.collected import Collected
from podsrl.run.step.judge import Judge
from podsrl.run.step.opens import with_completions
from podsrl.run.step.round import Round, Tally, take_stats
from podsrl.run.step.turns import Talks, no_talks
from podsrl.run.step.under_way import UnderWay, Work
from podsrl.run.step.waiting import oldest_first
from podsrl.scale.exchange import exchange
from podsrl.scale.processes import Processes
from podsrl.score import Scorer
from podsrl.types import Group, Open, Parent, Rollout, Task, Way

MAX_REMEMBERED_PROMPTS = 4096

Stage = Callable[[str], AbstractContextManager[Any]]
OnAnswer = Callable[[int, int], None]
"""Called with the number of completions that are done, and of all; both of this process."""
ViewAt = Callable[[int, int], View]
"""What the budget sees when it opens a step, with the data stream at a place."""


class Desk:
    """Turns asks into groups of scored rollouts.

    Args:
        engine: the generator; may be replaced at any time while nothing is under way.
        scorer: judges completions.
        tokenizer: of the model.
        processes: that share the run.
        order: what is under way at a time.
        train: the training set.
        budget: decides what a step asks.
        sampling: how the rollouts that are trained on are drawn.
        max_prompt_tokens: a longer prompt is an error. What a task set holds was looked through before; of a set that
            makes its tasks on demand, a sample.
        max_guided_tokens: a guide's prompt that is longer is dropped, and the task's own is asked.
        closing: what becomes of groups while they are generated.
        waits: which groups wait for later steps, that may ask more of them; None: those that `closing` leaves.
        repairs: what is added to a group when all of it is judged; None: nothing.
        watch: sees the rollouts of a step while they are generated; None: nothing does.
        talks: what is said to rollouts whose turn has ended.
        kind, num_words: as of `Checked`.
    """

    def __init__(
        self,
        engine: Generator,
        scorer: Scorer,
        tokenizer: Any,
        processes: Processes,
        *,
        order: OrderConfig,
        train: Sequence[Task],
        budget: Budget,
        sampling: Sampling,
        max_prompt_tokens: int,
        max_guided_tokens: int,
        closing: Closing,
        waits: Callable[[View], Sequence[str]] | None = None,
        repairs: Callable[[View, Group], Sequence[Rollout]] | None = None,
        watch: Watch | None,
        talks: Talks = no_talks,
        kind: Kind,
        num_words: int,
    ) -> None:
        self.tokenizer, self._processes, self._order = tokenizer, processes, order
        self.judge = Judge(scorer, tokenizer)
        self.budget, self.sampling = budget, sampling
        self.rounds: deque[Round] = deque()
        """The first round of each step that was asked and not trained on, the oldest first."""
        self.waiting: tuple[Open, ...] = ()
        """Groups of earlier steps that go on in the next one, the oldest first."""
        self.position = 0
        """Where the data stream stands after `rounds`."""
        self.tally = Tally()
        self.is_broken = False
        """A step that was asked could not be read: what a resumed run would train on is not there any more."""
        self._under_way = UnderWay(engine, kind=kind, num_words=num_words)
        self._going_on: Work | None = None  # the rollouts of groups that wait
        self._train = train
        self._max_prompt_tokens, self._max_guided_tokens = max_prompt_tokens, max_guided_tokens
        self._closing, self._waits, self._watch, self._talks = closing, waits, watch, talks
        self._repairs = repairs
        self._prompt_ids: dict[str, tuple[int, ...]] = {}

    @property
    def engine(self) -> Generator:
        """What generates."""
        return self._under_way.generator

    @engine.setter
    def engine(self, engine: Generator) -> None:
        self._under_way.generator = engine

    # --- a step ---

    def take(
        self, view_at: ViewAt, step: int, position: int, last: float, load: Callable[[], None], *, stage: Stage
    ) -> Collected:
        """Wait for the groups of a step, and ask for later ones. Until `taken`, the step can be taken again.

        Args:
            view_at: what the budget sees.
            step: to be taken.
            position: of the data stream where nothing is asked.
            last: no step from this one on is asked.
            load: gives the generator the newest weights, if it has older ones.
            stage: entered with "generate", "score" and, with several processes, EXCHANGE.

        Raises:
            UsageError: a part failed, or gave something that cannot be asked.
        """
        order = self._order
        further = order.ahead if order.take == "asked" and order.rest != "finish" else 0
        if not self.rounds:
            self.position, self.tally = position, Tally()
            take_stats(self.engine)  # of a step that failed
        try:
            with stage("generate"):
                self._let_go_on()
                self._ask(view_at, step, max(step + 1, min(last, step + 1 + further)))
                own = self.rounds[0]
                overlapped_seconds = time.perf_counter() - own.since if own.work is not None else 0.0
                self._read(own)
            load()
            found = self._finished(own, overlapped_seconds, stage)
            if order.rest == "put_off":
                with stage("generate"):
                    for each in self.rounds:
                        each.put_off()
            elif order.take == "asked" and order.is_ahead:
                with stage("generate"):
                    self._ask(view_at, step, min(last, step + 2 + further))
        except BaseException:
            self._give_up()
            raise
        return found

    def taken(self, collected: Collected) -> None:
        """The step is trained on."""
        self.rounds.popleft()
        self.waiting = collected.waiting
        self.tally = Tally()
        if self._going_on is not None:
            self._going_on.release(collected.trained)

    def settle(self) -> None:
        """Before an evaluation or a checkpoint: let nothing run. The next `take` lets go on what was stopped."""
        stops = self._order.rest != "finish" and {"partial", "start"} <= abilities_of(self.engine)
        for each in self.rounds:
            if stops:
                each.put_off()
            each.read_rest()
        if (work := self._going_on) is not None:
            if stops:
                work.put_off()
            self.waiting, self._going_on = tuple(with_completions(self.waiting, work)), None
        self.tally.add(self.engine)

    def _ask(self, view_at: ViewAt, step: int, end: float) -> None:
        """Ask the first rounds of steps before `end`, of those that may be under way; they begin now."""
        number = self.rounds[-1].view.step + 1 if self.rounds else step
        while number < min(end, step + 1 + (self._order.most_age or math.inf)):
            view = self._closing.opening(view_at(number, self.position), self.waiting)
            view = replace(view, waiting=tuple(each.group for each in self.waiting))
            first = self.waiting if self._waits is None and not self.rounds else ()
            self.rounds.append(self._begun(view, {}, first))
            self.position, number = view.stream.position, number + 1

    def _let_go_on(self) -> None:
        """Let rounds go on that were put off, or that a checkpoint gave; later ones begin behind them."""
        for each in self.rounds:
            if each.work is None and any(own.to_come for own in self._processes.share(each.opens)):
                each.work, each.since = self._work(each.opens), time.perf_counter()

    def _read(self, own: Round) -> None:
        """Read a round of the step that is taken; what is left of it goes on, or is put off."""
        work = own.work or Work(self._under_way, self.sampling, self.prompt_ids)
        own.opens = self._closing.read(own.view, own.opens, work, self.judge)
        if self._order.take == "first" and self._order.rest == "run":
            self._going_on, own.work = work, None
        own.put_off()

    def _finished(self, own: Round, overlapped_seconds: float, stage: Stage) -> Collected:
        """Judge what was read, and ask, generate and judge further rounds."""
        view, opens, waiting, step = own.view, dict[str, Open](), list[Open](), own
        while step.opens:
            whole = {each.group.id for each in self._closing.whole(step.opens)}
            waiting += [each for each in step.opens if each.group.id not in whole]
            judged = self._judged(step.view, [each for each in step.opens if each.group.id in whole], stage)
            opens |= {each.group.id: each for each in judged}
            view = view.after([each.group for each in judged])
            view.stream.position = self.position
            with stage("generate"):
                step = self._begun(view, opens)
                self.position = view.stream.position
                if step.opens:
                    self._read(step)
        if self._repairs is not None:
            longer = self._repaired(view, opens, stage)
            opens |= {each.group.id: each for each in longer}
            view = view.after([each.group for each in longer])
        self.judge.new_step()
        left, seen = oldest_first(waiting), view.groups
        if self._waits is not None:
            left, seen = self._left(opens, view, set(self._waits(view)))
        waits = {each.group.id for each in left}
        trained = self.budget.trained(view) - waits
        self.budget.check_sizes({name: each.size for name, each in opens.items() if name in trained})
        self.tally.add(self.engine)
        return Collected(
            seen=seen,
            trained=trained,
            unfinished=tuple(each for name, each in opens.items() if name not in waits and (each.begun or each.pruned)),
            waiting=left,
            num_resumed_tokens=sum(done.num_own for each in self.waiting for done in each.rollouts),
            data_position=self.position,
            stats=self.tally.stats,
            peak_kv_bytes=self.tally.peak_kv_bytes,
            overlapped_seconds=overlapped_seconds,
        )

    def _give_up(self) -> None:
        """The step that was to be taken failed. A run that is ahead takes it again, and asks anew for what ran."""
        self.is_broken = self._order.is_ahead and any(each.work is not None for each in self.rounds)
        for each in self.rounds:
            each.read_ended()
            each.work = None
        self._going_on = None
        if not self._order.is_ahead:
            self.rounds.clear()
        self._under_way.drop_all()

    def _repaired(self, view: View, opens: Mapping[str, Open], stage: Stage) -> list[Open]:
        """The groups that get repaired rollouts, with these."""
        assert self._repairs is not None
        longer = []
        with stage("score"):
            for each in opens.values():
                if made := self._repairs(view, each.group):
                    way = Way(count=len(made), origin="repaired")
                    longer.append(replace(each, ways=(*each.ways, way), begun=tuple(made)))
            found = self._score(self._processes.share(longer))
        return self._grown(longer, found, stage)

    def _left(
        self, opens: Mapping[str, Open], view: View, names: Set[str]
    ) -> tuple[tuple[Open, ...], tuple[Group, ...]]:
        """The groups of these names, which wait; and the step's others, with those that waited and do so no more."""
        before = {each.group.id: each for each in self.waiting}
        left = oldest_first(each for name, each in (before | dict(opens)).items() if name in names)
        gone = [each.group for name, each in before.items() if name not in opens and name not in names]
        return left, (*gone, *(group for group in view.groups if group.id not in names))

    def answer(self, opens: Sequence[Open], sampling: Sampling, *, on_answer: OnAnswer | None = None) -> list[Group]:
        """Generate and judge what open groups lack, which may be empty so far (`new_group`).

        Args:
            opens: the same on every process. A group's id decides, with the run's seed, every random number.
            sampling: how the rollouts are drawn.
            on_answer: called after each completion.

        Returns:
            The grown groups in the same order, on every process.
        """
        found = list(self.answers(self._processes.share(opens), sampling, on_answer=on_answer))
        return [each.group for each in self._grown(opens, found, nullcontext)]

    def generated(self, opens: Sequence[Open], sampling: Sampling) -> list[Open]:
        """The open groups with what is generated of the rollouts that they lack: judged by nobody, here alone."""
        return with_completions(opens, self._asked_beside(opens, sampling))

    def answers(
        self,
        opens: Sequence[Open],
        sampling: Sampling,
        *,
        num_waiting: int | None = None,
        on_answer: OnAnswer | None = None,
    ) -> Iterator[Open]:
        """As `answer`, of this process alone: each group with the rollouts that it lacked, in place of those it has.

        Args:
            num_waiting: whole groups that wait before the first is judged and yielded, while workers judge them and
                others are generated; None: all groups are judged in one call, and yielded in the order of `opens`.
        """
        asked, whole = {each.group.id: each for each in opens}, deque[str]()
        missing = {name: len(each.to_come) for name, each in asked.items()}
        found: dict[str, list[Rollout]] = {name: [] for name in asked}
        total = sum(missing.values())
        coming = self._asked_beside(opens, sampling)
        for done, completion in enumerate(self.judge.prefetched(opens, coming), start=1):
            name = completion.group_id
            found[name].append(completion)
            if on_answer is not None:
                on_answer(done, total)
            if num_waiting is not None and len(found[name]) == missing[name]:
                whole.append(name)
                if len(whole) > num_waiting:
                    yield from self._score(with_completions([asked[whole[0]]], found.pop(whole.popleft())))
        for names in [[name] for name in whole] if num_waiting is not None else [list(found)]:
            of_names = chain.from_iterable(found[name] for name in names)
            yield from self._score(with_completions([asked[name] for name in names], of_names))

    def _asked_beside(self, opens: Sequence[Open], sampling: Sampling) -> Iterator[Rollout]:
        """What open groups lack that no step trains on; counts of a step do not hold it."""
        self.tally.add(self.engine)
        work = Work(self._under_way, sampling, self.prompt_ids, talk=self._talks(sampling))
        try:
            work.add(opens)
            yield from work
        finally:
            self._under_way.drop(work)
            take_stats(self.engine)

    def prompt_ids(self, task: Task) -> tuple[int, ...]:
        """Tokens of a task's prompt. The newest thousands are remembered, since a step needs each twice."""
        ids = self._tokens(task)
        if len(ids) > self._max_prompt_tokens:
            raise UsageError(
                f"prompt of task {task.id!r} has {len(ids)} tokens, wanted 1 .. rollouts.max_prompt_tokens = "
                f"{self._max_prompt_tokens}: raise the limit, as --resume may too, or remove the task"
            )
        return ids

    def _tokens(self, task: Task) -> tuple[int, ...]:
        key = repr(task.prompt)  # which tells `TokenMarkup` from the same text of a data set
        if key not in self._prompt_ids:
            if len(self._prompt_ids) >= MAX_REMEMBERED_PROMPTS:
                self._prompt_ids.clear()
            self._prompt_ids[key] = prompt_ids(self.tokenizer, task)
        return self._prompt_ids[key]

    def _begun(self, view: View, opens: Mapping[str, Open], first: Sequence[Open] = ()) -> Round:
        """A round that is being generated, after those that gave `opens` (group id -> group); `first` go on in it."""
        asked = [*first, *self._asked(view, opens)]
        return Round(view=view, opens=asked, work=self._work(asked) if asked else None)

    def _work(self, opens: Sequence[Open]) -> Work:
        """What this process's share of open groups lacks, as rollouts that are trained on."""
        if (work := self._going_on) is not None:
            work.talk.new_step()
        else:
            talk = self._talks(self.sampling)
            work = Work(self._under_way, self.sampling, self.prompt_ids, watch=self._watch, talk=talk)
        work.add(self._processes.share(opens))
        return work

    def _asked(self, view: View, opens: Mapping[str, Open]) -> list[Open]:
        """The group of each ask, new or one of `opens`, with its rollouts; asks of one group are together."""
        asks = self.budget.ask(view)
        check_same_asks(asks, self._processes)
        known, asked, name = {each.group.id: each for each in self.waiting} | dict(opens), dict[str, Open](), ""
        for ask in asks:
            joins = name if ask.joins == "" else ask.joins
            each = known.get(joins or "") or Open(group=self._new_group(view, ask, place=len(known)), ways=())
            name, way = each.group.id, self._way(ask, each.group)
            known[name] = asked[name] = replace(each, ways=(*each.ways, way))
        return list(asked.values())

    def _way(self, ask: Ask, group: Group) -> Way:
        """How an ask's rollouts are asked; a guided prompt or a start beyond the limit is dropped, never cut."""
        plain = Way(count=ask.num_rollouts, origin=ask.origin)
        too_long = replace(plain, is_unguided=True, origin="guide too long")
        start = self._of_parent(ask.parent, group) if ask.parent else self._start(ask.start, ask.start_share)
        if len(start) >= self.sampling.max_new_tokens:
            return too_long
        guided = replace(plain, start_ids=start, parent=ask.parent, notes=ask.notes)
        if ask.prompt is None:
            return guided
        try:
            ids = self._tokens(replace(group.task, prompt=ask.prompt))
        except UsageError as error:
            raise UsageError(f"the budget asked with another prompt, {short(ask.prompt)}: {error}") from None
        return too_long if len(ids) > self._max_guided_tokens else replace(guided, prompt_ids=ids)

    def _of_parent(self, parent: Parent, group: Group) -> tuple[int, ...]:
        [found] = [one.token_ids[: parent.num_tokens] for one in group.rollouts if one.index == parent.index]
        return found

    def _start(self, text: str, share: float) -> tuple[int, ...]:
        """The first tokens of an answer, a share of all; special tokens in it are text."""
        message = {"role": "assistant", "content": text}
        [ids] = replies_ids(self.tokenizer, [[message]], [False]) if text and share else [()]
        return ids[: min(math.ceil(share * len(ids)), len(ids) - 1)] if ids else ()

    def _new_group(self, view: View, ask: Ask, place: int) -> Group:
        task = self._train[ask.index]
        group = new_group(request_id(view.step, place, task.id), task)
        return replace(group, index=ask.index, step=view.step, is_trained=ask.is_trained)

    def _judged(self, view: View, opens: Sequence[Open], stage: Stage) -> list[Open]:
        """The open groups of this process and of the others; what has ended is judged, and closed groups are cut."""
        with stage("score"):
            found = self._score(self._processes.share(opens), is_last=False)
        return [self._closing.closed(view, each) for each in self._grown(opens, found, stage)]

    def _grown(self, opens: Sequence[Open], found: list[Open], stage: Stage) -> list[Open]:
        """The open groups with the rollouts that were judged here (`_score`) and in other processes."""
        if not self._processes.is_alone:
            with stage(EXCHANGE):
                found = exchange(opens, found, self._processes)
        return [
            replace(new, group=replace(each.group, prompt_ids=new.group.prompt_ids).with_more(new.group.rollouts))
            for each, new in zip(opens, found, strict=True)
        ]

    def _score(self, opens: Sequence[Open], *, is_last: bool = True) -> list[Open]:
        """The open groups with what has ended, judged, in place of the rollouts they have; by this process alone."""
        if not opens:
            return []
        ended = [[done for done in each.begun if not done.is_open] for each in opens]
        judged = self.judge.score([each.group.task for each in opens], ended, is_last=is_last)
        return [self._with_judged(each, rollouts) for each, rollouts in zip(opens, judged, strict=True)]

    def _with_judged(self, each: Open, rollouts: Iterable[Rollout]) -> Open:
        ways = each.way_of
        pairs = ((rollout, ways[rollout.index]) for rollout in rollouts)
        own = tuple(
            replace(
                one,
                prompt_ids=way.prompt_ids,
                parent=one.parent or way.parent,  # one that begins with none of its parent's tokens came without it
                is_unguided=way.is_unguided,
                origin=way.origin,
            )
            for one, way in pairs
        )
        prompt_ids = self.prompt_ids(each.group.task)
        begun = tuple(done for done in each.begun if done.is_open)
        return replace(each, group=replace(each.group, prompt_ids=prompt_ids, rollouts=own), begun=begun)


def request_id(step: int, place: int, task_id: str) -> str:
    """Name the request, and the group, of the task at one place of a step.

    Example:
        >>> request_id(12, 3, "gsm8k/train/7")
        's12/3/gsm8k/train/7'
    """
    return f"s{step}/{place}/{task_id}"


def new_group(name: str, task: Task) -> Group:
    """A group without rollouts; its prompt becomes tokens with the first of them."""
    return Group(id=name, task=task, prompt_ids=(), rollouts=())
