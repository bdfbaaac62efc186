"""Service: the complete description of a language model that answers requests, in one object and one TOML file."""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lib_dlhpc.errors import SpecError, reason_of
from lib_dlhpc.spec import catalog
from lib_dlhpc.spec.experiment import read_model
from lib_dlhpc.spec.files import LARGEST_FILE, machine_named
from lib_dlhpc.spec.machine import Machine, read_machine
from lib_dlhpc.spec.model import Model
from lib_dlhpc.spec.schema import check_keys, choice, flag, number, read_table, whole

WIDTH = {"fp64": 8.0, "fp32": 4.0, "bf16": 2.0, "fp16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}
WIDTH |= {"nvfp4": 4 / 8 + 1 / 16, "mxfp4": 4 / 8 + 1 / 32}
"""Bytes of a stored number, with its part of the scale of a block of 16 or 32 (Open Compute Project 2023, "Microscaling
formats"; NVIDIA 2025, arXiv:2509.25149, section 2)."""
BATCHINGS = ("continuous", "static")
ATTENTION = ("together", "apart")
LONGEST = 4_000_000  # tokens of a request


@dataclass(frozen=True)
class Serving:
    """How a model is served.

    devices: of a replica, tensor parallel. precision: of the weights; with fp8, nvfp4 and mxfp4 products are in it
    where the device has such a rate, else, and with int8 and int4, in bf16. batch: most sequences that a replica
    decodes at once.
    chunk: most tokens of prompts in a step, which are decoded with; 0: a step has prompts, or decodes.
    attention: of all sequences in one kernel, or of one after the other, as in numpy.
    graph: the kernels of a step are launched as one graph, and wait for each other 0.5 us.
    prefix_block: tokens of a block whose keys and values are stored for requests that begin alike; 0: none is.
    prefill_replicas: of `replicas`, those that only read prompts and send the cache to the others; 0: all do both.
    experts: replicas, of one device each, that hold the experts together (serving/wide_experts.py); 1: each holds all.
    redundant: experts of a layer of which the group holds a second copy. imbalance: tokens of the busiest device of a
    group over the mean. microbatches: 2: a step works on one half of its tokens while the others are exchanged.
    """

    devices: int = whole(default=1)
    replicas: int = whole(default=1)
    precision: str = choice(tuple(WIDTH), default="bf16")
    cache_precision: str = choice(tuple(WIDTH), default="bf16")
    batch: int = whole(default=64, most=1_000_000)
    batching: str = choice(BATCHINGS, default="continuous")
    chunk: int = whole(default=0, least=0)
    attention: str = choice(ATTENTION, default="together")
    graph: bool = flag(default=True)
    prefix_block: int = whole(default=0, least=0, most=LONGEST)
    prefill_replicas: int = whole(default=0, least=0)
    experts: int = whole(default=1)
    redundant: int = whole(default=0, least=0)
    imbalance: float = number(default=1.0, least=1.0)
    microbatches: int = whole(default=1, most=2)


@dataclass(frozen=True)
class Drafting:
    """How a draft model is used (Leviathan et al. 2023, "speculative decoding").

    tokens: drafted before each step of the model that answers, which verifies them. acceptance: probability that a
    draft is accepted if those before it are; a property of both models and of the texts.
    """

    tokens: int = whole(default=4, most=64)
    acceptance: float = number(default=0.7, most=1.0)


@dataclass(frozen=True)
class Requests:
    """The load: Poisson arrivals, and lengths in tokens.

    rate: requests a second of all replicas; 0: all arrive at once. A spread is the standard deviation over the mean
    of a log-normal distribution; 0: all have one length. shared: first tokens of the prompts that begin alike, the
    part `sharing` of all, with one of `prefixes` texts, such as system prompts or conversations so far.
    """

    rate: float = number(default=1.0)
    prompt: int = whole(default=512, most=LONGEST)
    answer: int = whole(default=128, most=LONGEST)
    prompt_spread: float = number(default=0.0, most=10.0)
    answer_spread: float = number(default=0.0, most=10.0)
    shared: int = whole(default=0, least=0, most=LONGEST)
    prefixes: int = whole(default=1, most=1_000_000)
    sharing: float = number(default=1.0, most=1.0)
    count: int = whole(default=200, most=1_000_000)
    seed: int = whole(default=0, least=0)


@dataclass(frozen=True, repr=False)
class Service:
    """A service: the input of predict_service, simulate_service and run_service.

    draft: a smaller model on the same devices, whose tokens `model` verifies, or `model` itself: its own modules of
    multi-token prediction draft. None: each token takes a step.
    """

    model: Model
    machine: Machine
    service: Serving = field(default_factory=Serving)
    requests: Requests = field(default_factory=Requests)
    draft: Model | None = None
    drafting: Drafting = field(default_factory=Drafting)

    def __repr__(self) -> str:
        """Return the model, the machine, and how the model is served."""
        model, machine = (each.name or "unnamed" for each in (self.model, self.machine))
        return f"Service({model} on {machine}, {self.service!r}, {self.requests!r})"

    @property
    def drafts(self) -> int:
        """Tokens that are drafted before each step of the model."""
        return self.drafting.tokens if self.draft else 0

    @property
    def drafts_itself(self) -> bool:
        """Whether the model's own modules of multi-token prediction draft."""
        return self.draft is not None and bool(self.draft.options.get("mtp"))

    @property
    def longest(self) -> int:
        """Tokens of a request whose lengths are the mean: those in the cache when its answer ends."""
        return self.requests.prompt + self.requests.answer

    def set(self, **changes: Any) -> "Service":
        """Return a service with changed fields of [service], [requests] and [draft]; raises SpecError."""
        nouns = (Serving, Requests, Drafting)
        check_keys(changes, tuple(name for noun in nouns for name in noun.__annotations__), "set")
        ours = {key: changes.pop(key) for key in list(changes) if key in Serving.__annotations__}
        drafts = {key: changes.pop(key) for key in list(changes) if key in Drafting.__annotations__}
        serving = read_table(Serving, {**vars(self.service), **ours}, "service")
        requests = read_table(Requests, {**vars(self.requests), **changes}, "requests")
        drafting = read_table(Drafting, {**vars(self.drafting), **drafts}, "draft")
        return checked(replace(self, service=serving, requests=requests, drafting=drafting))


def read_service(source: Mapping[str, Any] | str | Path) -> Service:
    """Return the service of nested tables as parsed from TOML, or of a TOML file; raises SpecError."""
    if isinstance(source, Mapping):
        return _read(source)
    try:
        return _read(tables_of(source))
    except SpecError as error:
        words = str(error)
        raise SpecError(words if words.startswith(str(source)) else f"{source}: {words}") from None


def tables_of(path: str | Path) -> dict[str, Any]:
    """Return the tables of a TOML file; raises SpecError. path: or a model on a machine, as "llama3-8b@h100-pod"."""
    try:
        if on_machine := catalog.on_machine(path):
            model, machine = on_machine
            of_model = tables_of(model) if Path(model).is_file() else {"model": {"name": model}}
            return of_model | {"machine": machine_named(machine)}
        if path in catalog.names("models") and not Path(path).exists():
            raise SpecError(f"{path} is a model: name its machine too, such as {path}@h100-pod.")
        with open(path, "rb") as file:
            data = file.read(LARGEST_FILE + 1)
        if len(data) > LARGEST_FILE:
            raise SpecError(f"{path}: longer than {LARGEST_FILE:,} bytes, the limit.")
        return tomllib.loads(data.decode("utf-8"))
    except SpecError:
        raise
    except (OSError, ValueError, RecursionError) as error:  # missing, not UTF-8, not TOML
        raise SpecError(f"{path}: cannot be read: {reason_of(error)}.") from None


def _read(tables: Mapping[str, Any]) -> Service:
    check_keys(tables, ("model", "machine", "service", "requests", "draft"), "service file")
    for section in ("model", "machine"):
        if section not in tables:
            raise SpecError(f"[{section}] is missing; a service needs [model] and [machine].")
    model = read_model(tables["model"])
    draft, drafting = _read_draft(tables.get("draft"), model)
    return checked(
        Service(
            model,
            read_machine(tables["machine"]),
            read_table(Serving, tables.get("service", {}), "service"),
            read_table(Requests, tables.get("requests", {}), "requests"),
            draft,
            drafting,
        )
    )


def _read_draft(table: Any, target: Model) -> tuple[Model | None, Drafting]:
    """Return the draft model of [draft], which has its name or its family, and how it is used.

    Without either it is `target`, if that has modules of multi-token prediction.
    """
    if not isinstance(table, Mapping):
        return (None if table is None else read_model(table, "draft")), Drafting()
    own = {key: table[key] for key in table if key in Drafting.__annotations__}
    model = {key: table[key] for key in table if key not in own}
    drafting = read_table(Drafting, own, "draft")
    if not model and target.options.get("mtp"):
        return target, drafting
    return read_model(model, "draft"), drafting


def checked(service: Service) -> Service:
    """Return the service; raise SpecError unless it is of a language model, and its replicas are on the machine."""
    machine, serving = service.machine, service.service
    _check_text("model", service.model)
    if service.draft is not service.model:
        for path, model in (("model", service.model), ("draft", service.draft)):
            _check_modules(path, model)
    if service.draft and not service.drafts_itself:
        _check_text("draft", service.draft)
        words = [each.layers[0].attributes["vocabulary"] for each in (service.model, service.draft)]
        if words[0] != words[1]:
            raise SpecError(
                f"draft = {service.draft.name or service.draft.family!r}: has a vocabulary of {words[1]:,}; legal:"
                f" models with that of the model, {words[0]:,}."
            )
    most = int(machine.nodes * machine.devices_per_node)
    if serving.devices * serving.replicas > most:
        raise SpecError(
            f"service.devices = {serving.devices}, service.replicas = {serving.replicas}:"
            f" {machine.name or 'the machine'} has {most} devices; legal: a product of at most {most}."
        )
    _check_prefixes(service)
    _check_states(service)
    _check_pools(serving)
    _check_experts(service)
    return service


def _check_prefixes(service: Service) -> None:
    """Raise SpecError unless prompts are longer than what they share, and blocks of a prefix have the same bytes."""
    load, block = service.requests, service.service.prefix_block
    if load.shared >= load.prompt:
        raise SpecError(
            f"requests.shared = {load.shared}: legal: less than requests.prompt = {load.prompt}; the last token of a"
            " prompt is always computed."
        )
    if block and any(layer.attributes.get("window") for layer in service.model.layers):
        raise SpecError(
            f"service.prefix_block = {block}: {service.model.name or 'the model'} forgets tokens beyond its window;"
            " legal with it: 0."
        )


def _check_states(service: Service) -> None:
    """Raise SpecError where the state of a state-space layer would have to be split, or go back some tokens."""
    models = [each for each in (service.model, service.draft) if each]
    if not any(layer.kind == STATE_SPACE for model in models for layer in model.layers):
        return
    serving = service.service
    for path, value, legal in (
        ("service.devices", serving.devices, 1),
        ("service.prefix_block", serving.prefix_block, 0),
        ("draft", service.draft and (service.draft.name or service.draft.family), None),
    ):
        if value != legal:
            raise SpecError(
                f"{path} = {value!r}: the state of state-space layers is held whole, without those of earlier tokens;"
                f" legal: {'none' if legal is None else legal}."
            )


def _check_pools(serving: Serving) -> None:
    """Raise SpecError unless replicas are left that decode, in whole steps of continuous batches."""
    pool = serving.prefill_replicas
    if not pool:
        return
    if pool >= serving.replicas:
        raise SpecError(
            f"service.prefill_replicas = {pool}: service.replicas = {serving.replicas} in all; legal: 0 to"
            f" {serving.replicas - 1}."
        )
    for name, legal in (("chunk", 0), ("batching", "continuous"), ("prefix_block", 0)):
        if (value := getattr(serving, name)) != legal:
            raise SpecError(
                f"service.{name} = {value!r} with service.prefill_replicas = {pool}: legal: {legal!r}, or"
                " prefill_replicas = 0."
            )


def _check_experts(service: Service) -> None:
    """Raise SpecError unless replicas of one device can hold the experts together."""
    serving, model = service.service, service.model
    if serving.experts == 1:
        for name, only in (("redundant", 0), ("microbatches", 1), ("imbalance", 1.0)):
            if (value := getattr(serving, name)) != only:
                raise SpecError(
                    f"service.{name} = {value!r}: of the exchanges of experts; legal with service.experts = 1:"
                    f" {only!r}."
                )
        return
    asked = f"service.experts = {serving.experts}"
    layers = [layer for layer in model.layers if layer.has_experts]
    if not layers:
        raise SpecError(f"{asked}: {model.name or 'the model'} has no experts; legal: 1.")
    if serving.devices > 1:
        raise SpecError(f"{asked} with service.devices = {serving.devices}: legal with it: 1.")
    pool = serving.prefill_replicas
    if serving.replicas % serving.experts or pool % serving.experts:
        raise SpecError(
            f"{asked}: must divide service.replicas = {serving.replicas} and service.prefill_replicas = {pool}."
        )
    many = layers[0].attributes["experts"] + serving.redundant
    if many % serving.experts:
        legal = serving.redundant - many % -serving.experts
        raise SpecError(
            f"{asked}: must divide the {many} experts of {layers[0].name}, service.redundant = {serving.redundant}"
            f" among them; legal: service.redundant = {legal}."
        )


def _check_text(path: str, model: Model) -> None:
    """Raise SpecError unless a model generates text."""
    seen = [layer.attributes for layer in model.layers if is_attention(layer.kind)]
    remembers = seen or any(layer.kind == STATE_SPACE for layer in model.layers)
    if not remembers or not all(each.get("causal", "values" in each) for each in seen):
        raise SpecError(
            f"{path} = {model.name or model.family!r}: does not generate text; legal: language models of the families"
            " decoder, hybrid, llama, palm, gpt, opt, bloom and mpt."
        )


def _check_modules(path: str, model: Model | None) -> None:
    """Raise SpecError if a model has modules of multi-token prediction that no step would use."""
    if mtp := model and model.options.get("mtp"):
        raise SpecError(
            f"{path}.mtp = {mtp}: its modules draft if [draft] names no model; legal here: 0."
        )


STATE_SPACE = "state_space"  # layers with a state in place of a cache
INDEXER = "indexer"  # those with a cache of keys alone


def is_attention(kind: str) -> bool:
    """Return whether layers of a kind read a cache of keys and values."""
    return kind.endswith("attention")


def lengths(service: Service) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the tokens of each request's prompt and answer, drawn with the seed; at least 1 each."""
    load = service.requests
    rng = np.random.default_rng([load.seed, 1])
    prompts = _drawn(rng, load.prompt, load.prompt_spread, load.count)
    return prompts, _drawn(rng, load.answer, load.answer_spread, load.count)


def prefixes(service: Service) -> NDArray[np.int64]:
    """Return which prefix each request's prompt begins with, drawn with the seed; -1: none that others have."""
    load = service.requests
    rng = np.random.default_rng([load.seed, 4])
    drawn, has_one = (
        rng.integers(0, load.prefixes, load.count),
        rng.random(load.count) < load.sharing,
    )
    return np.where(has_one, drawn, -1) if load.shared else np.full(load.count, -1)


def arrivals(service: Service) -> NDArray[np.float64]:
    """Return when each request arrives in s, a Poisson process drawn with the seed."""
    load = service.requests
    if not load.rate:
        return np.zeros(load.count)
    rng = np.random.default_rng([load.seed, 0])
    return np.cumsum(rng.exponential(1 / load.rate, load.count))


def _drawn(rng: np.random.Generator, mean: int, spread: float, count: int) -> NDArray[np.int64]:
    """Return lengths from a log-normal distribution of this mean."""
    variance = np.log1p(spread**2)
    drawn = mean * np.exp(np.sqrt(variance) * rng.standard_normal(count) - variance / 2)
    return np.clip(np.rint(drawn), 1, LONGEST).astype(np.int64)
