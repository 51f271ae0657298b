"""Model, tokenizer and prompts; what is trained, and what the generator samples from."""

from podsrl.policy.device import choose_device, computes_in_bfloat16, device_notes
from podsrl.policy.identity import WEIGHTS, model_identity, tokenizer_identity
from podsrl.policy.load import check_model_options, load_policy
from podsrl.policy.lora import AdaptedPolicy
from podsrl.policy.policy import Policy
from podsrl.policy.replies import replies_ids
from podsrl.policy.source import model_folder, quiet_bars
from podsrl.policy.tokenizer import check_chat_template, load_tokenizer, prompt_ids, prompts_ids, special_token_in
from podsrl.policy.tools import with_tools
from podsrl.policy.weights import generation_config, load_model, outline

__all__ = [
    "WEIGHTS",
    "AdaptedPolicy",
    "Policy",
    "check_chat_template",
    "check_model_options",
    "choose_device",
    "computes_in_bfloat16",
    "device_notes",
    "generation_config",
    "load_model",
    "load_policy",
    "load_tokenizer",
    "model_folder",
    "model_identity",
    "outline",
    "prompt_ids",
    "prompts_ids",
    "quiet_bars",
    "replies_ids",
    "special_token_in",
    "tokenizer_identity",
    "with_tools",
]
