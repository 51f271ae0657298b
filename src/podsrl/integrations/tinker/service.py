"""The four verbs of the service, over its own client (`tinker` of PyPI): sample, forward_backward, optim_step, save.

The client asks again where the service answers with 429 or 5xx, or a connection is lost, and names each request, so
that the service does none twice. What it gives up becomes one line here. After a fault between two saved states nobody
knows which weights the service holds: this run then neither trains nor saves any more, and a resumed one begins from
the last saved state.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2

from podsrl.errors import LostGenerator, PodsError, UnavailableError, UsageError, nearest, one_line, short
from podsrl.integrations.tinker.datums import Row
from podsrl.lib.seeds import derive

KEY, ADDRESS = "TINKER_API_KEY", "TINKER_BASE_URL"
"""Environment variables that the client reads."""
_CONNECT_SECONDS, _CLOSE_SECONDS = 10.0, 5.0
_SPEAKS_TWICE = ("tinker.lib.retry_handler", "tinker.lib.api_future_impl", "tinker.lib.session_futures_poller")
"""Loggers that report what ends up in an error here."""
_CURE = {
    401: f"set the environment variable {KEY} to a key of this service",
    402: "see the service's page on billing",
    403: f"the key in {KEY} may not do this",
    429: "wait until the service has room",
}


class Service:
    """One training run at a service. Nothing is asked of it before `check` or `begin`.

    Args:
        base_url: of the service; "": the environment variable TINKER_BASE_URL, else Tinker's own.
        base_model: the service's name of the model; "": `model.path`.
        tokenizer: folder or hub name of the service's tokenizer; "": what the service says.
        rank: of its adapters.
        timeout_seconds: longest wait for one answer, with all that the client repeats.

    Raises:
        UsageError: no such address.
    """

    def __init__(
        self,
        *,
        base_url: str = "",
        base_model: str = "",
        tokenizer: str = "",
        rank: int = 32,
        timeout_seconds: float = 1800.0,
    ) -> None:
        self.base_model, self.rank = base_model, rank
        self._base_url = check_address(base_url) if base_url else ""
        self._tokenizer_name, self._timeout_seconds = tokenizer, timeout_seconds
        self._own_tokenizer: Any = None
        self._seed = 0
        self._client: Any = None
        self._training: Any = None
        self._fault, self._has_gradients = "", False

    @property
    def url(self) -> str:
        """Where it answers."""
        _sdk()
        from tinker.lib.base_url import resolve_base_url

        return str(resolve_base_url(self._base_url or None))

    # --- before a run ---

    def check(self) -> None:
        """It answers, and takes the key.

        Raises:
            UnavailableError: the client is not installed, or nothing answers.
            UsageError: the key is missing or refused; the service has no model `base_model`.
        """
        sdk, url = _sdk(), check_address(self.url)
        try:
            httpx2.get(f"{url}/api/v1/healthz", timeout=_CONNECT_SECONDS)
        except httpx2.HTTPError as error:
            raise UnavailableError(
                f"{self._at}: no answer ({one_line(str(error) or type(error).__name__, 200)}); set "
                f"options.tinker.base_url, or {ADDRESS}, to a service that runs"
            ) from None
        try:
            with self._asking("its models"):
                client = sdk.RestClient(base_url=self._base_url or None)
                found = client.get_server_capabilities().result(self._timeout_seconds)
        except LostGenerator as error:
            if getattr(error.__cause__, "status_code", None) == 404:
                return  # a service that does not say
            raise UsageError(str(error)) from None
        names = [model.model_name for model in found.supported_models if model.model_name]
        if names and self.base_model and self.base_model not in names:
            raise UsageError(
                f"options.tinker.base_model = {self.base_model!r} (by default model.path): {self._at} has no such "
                f"model.{nearest(self.base_model, names)}"
            )

    def begin(self, seed: int, tokenizer: Any) -> None:
        """A run is about to train: the seed decides new adapters, and the tokenizer has to be the service's."""
        self._seed, self._own_tokenizer = seed, tokenizer

    # --- the verbs ---

    def sampler(self) -> Any:
        """What samples from the weights as they are now."""
        with self._asking("new weights to sample from"):
            return self._trained().save_weights_and_get_sampling_client().result(self._timeout_seconds)

    def sample(self, sampler: Any, prompt: Sequence[int], num_samples: int, options: Mapping[str, Any]) -> Future[Any]:
        """Ask for completions of a prompt."""
        sdk = _sdk()
        with self._asking("samples"):
            asked = sampler.sample(
                sdk.ModelInput.from_ints(list(prompt)), num_samples, sdk.SamplingParams(**dict(options))
            )
            found: Future[Any] = asked.future()
            return found

    def samples_of(self, future: Future[Any]) -> list[Any]:
        """The completions of a request that has ended."""
        with self._asking("samples"):
            return list(future.result(self._timeout_seconds).sequences)

    def forward_backward(self, rows: Sequence[Row], loss: str, bounds: Mapping[str, float]) -> list[Any]:
        """Add the gradient of these rows; returns the log-probs of each row's targets, none where it gives none."""
        sdk = _sdk()
        data = [
            sdk.Datum(
                model_input=sdk.ModelInput.from_ints(row.tokens),
                loss_fn_inputs={
                    "target_tokens": row.target_tokens,
                    "logprobs": row.logprobs,
                    "advantages": row.advantages,
                },
            )
            for row in rows
        ]
        with self._changing("forward_backward"):
            asked = self._trained().forward_backward(data, loss, loss_fn_config=dict(bounds) or None)
            outputs = asked.result(self._timeout_seconds).loss_fn_outputs
        self._has_gradients = True
        return [output["logprobs"].data for output in outputs if "logprobs" in output]

    def optim_step(self, **adam: float) -> Mapping[str, float]:
        """One step of AdamW; returns what the service says of it."""
        sdk = _sdk()
        with self._changing("optim_step"):
            asked = self._trained().optim_step(sdk.AdamParams(**adam))
            metrics = asked.result(self._timeout_seconds).metrics
        self._has_gradients = False
        return dict(metrics or {})

    def save(self, name: str) -> str:
        """Keep weights and optimizer under a name; returns where.

        Raises:
            PodsError: not between two optimizer steps, or the service's weights are not known.
        """
        if self._has_gradients:
            raise PodsError(f"{self._at}: save_state between forward_backward and optim_step would lose the gradients")
        with self._asking("save_state"):
            return str(self._trained().save_state(name, overwrite=True).result(self._timeout_seconds).path)

    def load(self, path: str) -> None:
        """Go on from what was saved; a step that came after it is as if it had not been."""
        with self._asking(f"the saved state {path}"):
            made = self._connected().create_training_client_from_state_with_optimizer(path)
            self._training = made.result(self._timeout_seconds)
        self._fault, self._has_gradients = "", False
        self._check_tokenizer()

    def ready(self) -> None:
        """There is a model to sample from and to train.

        Raises:
            UsageError: its tokenizer is another than the run's.
        """
        if self._training is None:
            with self._asking(f"the model {self.base_model!r}"):
                made = self._connected().create_lora_training_client(
                    self.base_model, rank=self.rank, seed=derive(self._seed, "adapters") % 2**31
                )
                self._training = made.result(self._timeout_seconds)
            self._check_tokenizer()

    def close(self) -> None:
        """End the session."""
        client, self._client, self._training = self._client, None, None
        if client is not None:
            with suppress(Exception):  # it ends by itself when it hears nothing any more
                client.close().result(_CLOSE_SECONDS)

    # --- inside ---

    @property
    def _at(self) -> str:
        return f"rollouts.generator = 'tinker' at {self.url}"

    def _connected(self) -> Any:
        if self._client is None:
            self._client = _sdk().ServiceClient(base_url=self._base_url or None)
        return self._client

    def _trained(self) -> Any:
        if self._fault:
            raise PodsError(
                f"{self._at}: {self._fault}, so which weights it holds is not known: go on from the last checkpoint, "
                "with --resume"
            )
        self.ready()
        return self._training

    @contextmanager
    def _changing(self, what: str) -> Iterator[None]:
        """A request after whose loss nobody knows the weights or their gradients."""
        try:
            with self._asking(what):
                yield
        except BaseException:
            self._fault = self._fault or f"{what} was not confirmed"
            raise

    @contextmanager
    def _asking(self, what: str) -> Iterator[None]:
        """Whatever the client raises becomes one line."""
        try:
            yield
        except PodsError:
            raise
        except TimeoutError:
            raise LostGenerator(
                f"{self._at} gave no answer to {what} within options.tinker.timeout_seconds = "
                f"{self._timeout_seconds:g}",
                is_final=True,
            ) from None
        except Exception as error:  # the client has many types of its own, and those of the libraries below it
            status = getattr(error, "status_code", None)
            cure = f"; {_CURE[status]}" if status in _CURE else ""
            raise LostGenerator(f"{self._at}: {what}: {_told(error)}{cure}", is_final=True) from error

    def _check_tokenizer(self) -> None:
        """The service reads the tokens that the run writes."""
        data = self._training.get_info().model_data
        name = self._tokenizer_name or data.tokenizer_id or data.model_name or self.base_model
        if self._own_tokenizer is None:
            return
        from transformers import AutoTokenizer

        try:
            theirs = AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except Exception as error:  # of the hub, of the files, of the tokenizer's own code
            raise UsageError(
                f"{self._at}: its tokenizer {name!r} cannot be loaded, so whether it is that of model.path is not "
                f"known ({one_line(str(error), 200)}): set options.tinker.tokenizer to a folder or hub name of it"
            ) from None
        if difference := vocabulary_difference(self._own_tokenizer, theirs):
            raise UsageError(
                f"{self._at}: the service's tokenizer {name!r} is not that of model.path: {difference}; set "
                "model.path to the model that the service trains"
            )


def check_address(url: str) -> str:
    """An address without a slash at its end.

    Raises:
        UsageError: no address of a server, or one with a user or a query, where a key may stand.

    Example:
        >>> check_address("http://127.0.0.1:8000/")
        'http://127.0.0.1:8000'
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or url != "".join(url.split()):
        raise UsageError(
            f"options.tinker.base_url (or {ADDRESS}) = {short(url)}: wanted an address, such as https://HOST/PATH"
        )
    if parts.username is not None or parts.query or parts.fragment:
        raise UsageError(
            f"options.tinker.base_url (or {ADDRESS}) has a user, a query or a fragment: leave them out, and put the "
            f"key into the environment variable {KEY}"
        )
    return url.rstrip("/")


def vocabulary_difference(own: Any, theirs: Any) -> str:
    """What one tokenizer has otherwise than the other; empty where they write the same tokens."""
    ours, others = own.get_vocab(), theirs.get_vocab()
    for token, number in sorted(ours.items(), key=lambda item: item[1]):
        if others.get(token) != number:
            return f"{token!r} is token {number} of {len(ours)}, there {others.get(token, 'none')} of {len(others)}"
    if len(ours) < len(others):
        return f"it has {len(others)} tokens, model.path {len(ours)}"
    if own.eos_token_id != theirs.eos_token_id:
        return f"its end token is {theirs.eos_token_id}, that of model.path {own.eos_token_id}"
    return ""


def _told(error: BaseException) -> str:
    """An error of the client in one line, without the key."""
    key, text = os.environ.get(KEY, ""), one_line(f"{type(error).__name__}: {error}", 300)
    return text.replace(key, "…") if len(key) > 3 else text


def _sdk() -> Any:
    """The service's client; UnavailableError: it is not installed."""
    try:
        import tinker
    except ImportError:
        raise UnavailableError(
            "rollouts.generator = 'tinker' needs the package tinker, which is not installed: pip install "
            "'podsrl[tinker]'"
        ) from None
    for name in _SPEAKS_TWICE:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return tinker
