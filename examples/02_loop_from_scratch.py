"""The whole PODS loop in one file, without podsrl: numpy, torch and transformers, nothing hidden.

    questions     two-digit additions, in a random order
    generate      n answers to each of P questions, token by token
    score         1 for a right answer + 0.1 for an answer of the form "Answer: 12."
    select        of each n, the m answers whose rewards vary most (PODS, arXiv 2504.13818)
    advantage     how much better each kept answer did than the others of its group
    update        GRPO's clipped loss on the m only, AdamW

The model is the small one that comes with podsrl; nothing else of the package is used. `03_loop_with_podsrl.py` is the
same loop made of the library's parts; it samples the same tokens and prints the same numbers.

    python examples/02_loop_from_scratch.py
    python examples/02_loop_from_scratch.py --steps 2 --num-rollouts 8 --num-kept 4     a few seconds

Expected output, after about 15 seconds on one CPU core. Another processor may give other last digits, and later larger
differences, because a token drawn differently changes everything after it:

    step   1  loss -0.003422  grad_norm 0.0943  reward 0.155  accuracy 5.5%
    step   2  loss -0.002419  grad_norm 0.1232  reward 0.137  accuracy 3.7%
    step   3  loss -0.003655  grad_norm 0.1353  reward 0.168  accuracy 6.8%
    ...
    step  19  loss -0.001498  grad_norm 0.3339  reward 1.067  accuracy 96.7%
    step  20  loss -0.000528  grad_norm 0.6712  reward 1.043  accuracy 94.3%
"""

from __future__ import annotations

import argparse
import hashlib
import re
from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

MAX_NEW_TOKENS = 48
NUM_EPOCHS = 2  # optimizer steps on the same answers: only from the second on does the ratio differ from 1
CLIP = 0.2
GOLDEN = 0x9E3779B97F4A7C15


def train(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Train, and yield after each step what it did."""
    tokenizer = AutoTokenizer.from_pretrained(options.model)
    model = AutoModelForCausalLM.from_pretrained(options.model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.99), weight_decay=0.0)
    pairs = training_pairs()
    order = np.random.default_rng([options.seed, 0]).permutation(len(pairs))
    for step in range(options.steps):
        questions = pairs[order[step * options.num_prompts :][: options.num_prompts]].tolist()
        prompts = torch.tensor([tokenizer.encode(f"What is {a} + {b}?\n") for a, b in questions])  # [P, L]
        ids = [f"s{step}/{a}+{b}" for a, b in questions]
        draws = uniforms(options.seed, ids, options.num_rollouts, MAX_NEW_TOKENS)  # [P * n, T]
        rows = prompts.repeat_interleave(options.num_rollouts, 0)  # [P * n, L]
        tokens, logprobs, mask = generate(model, rows, draws, tokenizer.eos_token_id)

        answers = [row[keep].tolist() for row, keep in zip(tokens, mask, strict=True)]
        texts = tokenizer.batch_decode(answers, skip_special_tokens=True)
        sums = [a + b for a, b in questions for _ in range(options.num_rollouts)]
        is_correct = torch.tensor([ends_with(text, str(total)) for text, total in zip(texts, sums, strict=True)])
        has_form = torch.tensor([ends_with(text, "-?[0-9]+") for text in texts])
        rewards = (1.0 * is_correct.double() + 0.1 * has_form.double()).view(-1, options.num_rollouts)  # [P, n]

        kept = [max_variance(group, options.num_kept) for group in rewards.tolist()]  # [P, m]
        chosen = [group * options.num_rollouts + i for group, indices in enumerate(kept) for i in indices]
        advantages = group_advantages(rewards.gather(1, torch.tensor(kept))).flatten().float()  # [P * m]
        batch = rows[chosen], tokens[chosen], logprobs[chosen], mask[chosen], advantages
        for _ in range(NUM_EPOCHS):
            loss, grad_norm = update(model, optimizer, *batch)
        yield {
            "step": step + 1,
            "loss": loss,
            "grad_norm": grad_norm,
            "reward": rewards.mean().item(),
            "accuracy": is_correct.double().mean().item(),
            "answers": answers,
            "kept": kept,
        }


def training_pairs() -> NDArray[np.int64]:
    """All pairs of two-digit numbers but an eighth, chosen by a hash, which is held out for evaluation: [N, 2]."""
    pairs = np.stack(np.divmod(np.arange(8100), 90), axis=1) + 10
    unordered = (pairs.min(axis=1) * 1000 + pairs.max(axis=1)).astype(np.uint64)
    is_held_out = mix(unordered + np.uint64(GOLDEN)) % np.uint64(8) == 0
    return pairs[~is_held_out]


def uniforms(seed: int, ids: Sequence[str], num_rollouts: int, num_tokens: int) -> Tensor:
    """[P * n, T] numbers in [0, 1): hashes of (seed, question, rollout, position), so no draw depends on its batch."""
    digests = [hashlib.blake2b(f"{seed}/{i}".encode(), digest_size=8).digest() for i in ids]
    keys = np.array([int.from_bytes(digest, "little") for digest in digests], dtype=np.uint64)
    rows = mix(keys[:, None] + mix(np.arange(num_rollouts, dtype=np.uint64) + np.uint64(GOLDEN)))
    positions = np.arange(1, num_tokens + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    bits = mix(rows.reshape(-1, 1) + positions)
    return torch.from_numpy((bits >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """SplitMix64's finaliser (Steele et al. 2014): any 64 bits become 64 bits that look random."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@torch.no_grad()
def generate(model: Any, rows: Tensor, draws: Tensor, stop: int) -> tuple[Tensor, Tensor, Tensor]:
    """Sample an answer a row: tokens, their log-probabilities, and which are the answer's, all [B, T].

    All prompts have the same length, so nothing is padded. A finished row goes on until all are; `mask` leaves the rest
    of it out.
    """
    steps, cache, inputs = [], None, rows
    is_alive = torch.ones(len(rows), dtype=torch.bool)
    for t in range(draws.shape[1]):
        output = model(input_ids=inputs, past_key_values=cache, use_cache=True)
        cache, table = output.past_key_values, output.logits[:, -1].log_softmax(-1)  # [B, V]
        cumulative = table.exp().cumsum(-1, dtype=torch.float64)
        inputs = torch.searchsorted(cumulative, draws[:, t, None] * cumulative[:, -1:], right=True)  # [B, 1]
        steps.append((inputs[:, 0], table.gather(-1, inputs)[:, 0], is_alive))
        is_alive = is_alive & (inputs[:, 0] != stop)
        if not is_alive.any():
            break
    tokens, logprobs, mask = (torch.stack(column, dim=1) for column in zip(*steps, strict=True))
    return tokens, logprobs, mask


def ends_with(text: str, number: str) -> bool:
    """Whether the text ends with "Answer: NUMBER.", NUMBER being a pattern, and gives no other answer."""
    return re.search(rf"Answer: {number}\.\s*\Z", text) is not None and text.count("Answer:") == 1


def max_variance(rewards: Sequence[float], num_kept: int) -> list[int]:
    """Keep the m of n rewards with the largest variance: always the k highest and the m - k lowest, for some k.

    So m + 1 candidates are enough. Of equally good ones the most balanced is taken; rounding forgives float noise. Of
    equal rewards the earliest are kept.
    """
    up, down = (np.argsort(signed, kind="stable") for signed in (np.array(rewards), -np.array(rewards)))
    lows = [[*up[: num_kept - k]] for k in range(num_kept + 1)]
    lowest_and_highest = [[*low, *[i for i in down if i not in low][:k]] for k, low in enumerate(lows)]
    variances = [round(float(np.var([rewards[i] for i in subset])), 9) for subset in lowest_and_highest]
    best = max(range(num_kept + 1), key=lambda k: (variances[k], -abs(k - num_kept / 2)))
    return sorted(int(i) for i in lowest_and_highest[best])


def group_advantages(rewards: Tensor) -> Tensor:
    """GRPO's advantage of the kept m, [P, m]: (reward - mean) / deviation; 0 in a group of equal rewards."""
    advantages = (rewards - rewards.mean(1, keepdim=True)) / (rewards.std(1, keepdim=True) + 1e-4)
    return advantages * (rewards.amax(1, keepdim=True) > rewards.amin(1, keepdim=True))


def update(
    model: Any, optimizer: Any, prompts: Tensor, tokens: Tensor, behaviour: Tensor, mask: Tensor, advantages: Tensor
) -> tuple[float, float]:
    """One optimizer step on GRPO's loss (arXiv 2402.03300, eq. 3): the loss, and the gradient norm before clipping."""
    if not advantages.any():
        return 0.0, 0.0  # the rewards of each group are equal: no training signal
    logits = model(input_ids=torch.cat([prompts, tokens], dim=1), use_cache=False).logits
    table = logits[:, prompts.shape[1] - 1 : -1].log_softmax(-1)  # a token is predicted at the position before it
    logprobs = table.gather(-1, tokens[..., None])[..., 0]  # [B, T]
    ratio = (logprobs - behaviour).exp()
    scale = advantages[:, None]
    losses = -torch.minimum(ratio * scale, ratio.clamp(1 - CLIP, 1 + CLIP) * scale)
    loss = ((losses * mask).sum(1) / mask.sum(1)).mean()  # mean over an answer's tokens, then over answers
    optimizer.zero_grad()
    loss.backward()
    grad_norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return loss.item(), grad_norm.item()


def main() -> None:
    parser = argparse.ArgumentParser(description="PODS on two-digit addition, from scratch.")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--num-prompts", type=int, default=8, help="questions per step (P)")
    parser.add_argument("--num-rollouts", type=int, default=64, help="answers generated per question (n)")
    parser.add_argument("--num-kept", type=int, default=16, help="answers trained on per question (m)")
    parser.add_argument("--lr", type=float, default=3e-4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--model", default=str(files("podsrl") / "models" / "arithmetic"), help="folder")
    disable_progress_bar()
    torch.set_num_threads(1)  # such a small model is no faster on more
    options = parser.parse_args()
    if not 2 <= options.num_kept <= options.num_rollouts:
        parser.error(f"--num-kept {options.num_kept}: wanted 2 .. --num-rollouts {options.num_rollouts}")
    for done in train(options):
        print(
            f"step {done['step']:3}  loss {done['loss']:+.6f}  grad_norm {done['grad_norm']:.4f}  "
            f"reward {done['reward']:.3f}  accuracy {done['accuracy']:.1%}"
        )


if __name__ == "__main__":
    main()
