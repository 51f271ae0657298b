"""Text of a prompt on its way to a worker."""

from __future__ import annotations

import json

from podsrl.score.workers.wire import from_json, to_json
from podsrl.types import TokenMarkup


def test_a_prompt_with_special_tokens_crosses_as_what_it_is() -> None:
    messages = ({"role": "system", "content": TokenMarkup("<|im_start|>")},)
    line = json.dumps(to_json(messages))
    [message] = json.loads(line, object_hook=from_json)
    assert message["content"] == "<|im_start|>" and type(message["content"]) is TokenMarkup
