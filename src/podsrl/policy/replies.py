"""What is said to the model as tokens: in a chat, with what closes the model's turn and opens the next."""

from __future__ import annotations

from collections.abc import Sequence

from podsrl.errors import UsageError
from podsrl.policy.control_tokens import control_tokens
from podsrl.policy.policy import Tokenizer
from podsrl.policy.render import Conversation, RenderError, render

Ids = tuple[int, ...]


def replies_ids(tokenizer: Tokenizer, replies: Sequence[Conversation], is_chat: Sequence[bool]) -> list[Ids]:
    """Token ids of replies, to be read behind a turn of the model; special tokens in them are text.

    Args:
        replies: messages of the user or of tools.
        is_chat: of each, whether the model's turn is an assistant's message. Then the tokens begin with what the chat
            template writes behind the turn, and end with the opening of the next; else they are the contents alone.

    Raises:
        UsageError: the chat template refuses the messages, or leaves out the assistant's; the tokenizer cannot encode
            special tokens as text.
    """
    control = control_tokens(tokenizer)
    stood_in = [control.stand_in(messages) for messages in replies]
    texts = ["".join(message["content"] for message in messages) for messages, _ in stood_in]
    chats = [i for i, each in enumerate(is_chat) if each]
    for i, tail in zip(chats, _behind_a_turn(tokenizer, [stood_in[i][0] for i in chats]), strict=True):
        texts[i] = tail
    marked = [i for i, (_, stands_for) in enumerate(stood_in) if stands_for]
    found = dict(zip(marked, control.encode_rendered([(texts[i], stood_in[i][1]) for i in marked]), strict=True))
    plain = [i for i in range(len(texts)) if i not in found and texts[i]]
    if plain:  # the rollout's own limit says what is too long
        encoded = tokenizer([texts[i] for i in plain], add_special_tokens=False, verbose=False)["input_ids"]
        found |= {i: tuple(ids) for i, ids in zip(plain, encoded, strict=True)}
    return [found.get(i, ()) for i in range(len(texts))]


def _behind_a_turn(tokenizer: Tokenizer, replies: Sequence[Conversation]) -> list[str]:
    """What a chat template writes behind an assistant's message where such messages follow."""
    if not replies:
        return []
    used = {character for messages in replies for message in messages for character in message["content"]}
    turn = next(character for character in map(chr, range(0xF0000, 0xFFFFE)) if character not in used)
    before = [{"role": "user", "content": "?"}, {"role": "assistant", "content": turn}]
    try:
        rendered = render(tokenizer, [[*before, *messages] for messages in replies])
    except RenderError as error:
        roles = ", ".join(sorted({message["role"] for messages in replies for message in messages}))
        raise UsageError(
            f"the chat template of the model's tokenizer refuses a reply (roles {roles}): {error}; ask in plain "
            "text with task.chat = false, or use a model whose template takes several turns"
        ) from None
    parts = [text.rpartition(turn) for text in rendered]  # some templates write a message twice
    if not all(mark for _, mark, _ in parts):
        raise UsageError(
            "the chat template of the model's tokenizer leaves out the assistant's earlier messages, so no "
            "reply can stand behind them: ask in plain text with task.chat = false"
        )
    return [tail for _, _, tail in parts]
