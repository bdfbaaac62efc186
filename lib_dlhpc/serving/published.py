"""Published measurements of serving, beside their predictions.

catalog/published/serving.csv has the rows with their sources. A row that is illustrative has an effect that the model
does not price; its note names it. No parameter was fitted to any row, but the test was not blind: some of the model was
changed after the rows had been seen (docs/guide/serve.md).
"""

import csv
from dataclasses import dataclass
from functools import cache, cached_property

from lib_dlhpc.serving.predict import predict_service
from lib_dlhpc.serving.price import Chunk, Prices
from lib_dlhpc.serving.service import Service, read_service
from lib_dlhpc.spec.catalog import ROOT

FILE = ROOT / "published" / "serving.csv"
MOST = 2048  # sequences in a batch of a server that states no limit: TensorRT-LLM's default
BAND = 0.6  # of a scored row: predicted over published is at most 1.6, and at least 1 / 1.6


@dataclass(frozen=True, repr=False)
class Published:
    """A measurement that someone published: a service, and one number of it.

    quantity: tokens_per_second of a replica, tokens_per_second_device, decode_tokens_per_second without prompts,
    first_token_ms, or of a node in steps of one kind: prompt_tokens_per_second_node of `batch` whole prompts on each
    device, decode_tokens_per_second_node of `batch` sequences.
    """

    name: str
    source: str
    service: Service
    quantity: str
    published: float
    scored: bool
    notes: str

    def __repr__(self) -> str:
        """Return both numbers and their error."""
        numbers = (
            f"published {self.published:g}, predicted {self.predicted:.4g} ({self.error:+z.0%})"
        )
        return f"<{self.name}: {self.quantity} {numbers}>"

    @cached_property
    def predicted(self) -> float:
        """The same number, predicted."""
        serving, load = self.service.service, self.service.requests
        prices = Prices(self.service)
        if self.quantity == "first_token_ms":
            return 1e3 * prices.prefill(load.prompt).total
        if self.quantity == "decode_tokens_per_second":
            return (load.answer - 1) / prices.answers(1, load.prompt, load.answer).total
        if self.quantity == "tokens_per_second":
            return predict_service(self.service).full.tokens_per_second
        if self.quantity.endswith("_node"):
            return self.service.machine.devices_per_node * self._of_device(prices)
        first = prices.prompts(serving.batch, load.prompt)
        both = first + prices.answers(serving.batch, load.prompt, load.answer)
        return serving.batch * load.answer / both.total / serving.devices

    def _of_device(self, prices: Prices) -> float:
        """Return the tokens a second of a device in steps that only read prompts, or only decode."""
        batch, prompt = self.service.service.batch, self.service.requests.prompt
        if self.quantity == "prompt_tokens_per_second_node":
            return batch * prompt / prices.step([Chunk(prompt)] * batch).total
        return batch / prices.decode(batch, prompt).total

    @property
    def error(self) -> float:
        """Predicted over published, less 1."""
        return self.predicted / self.published - 1


@cache
def published() -> tuple[Published, ...]:
    """Return all rows."""
    with FILE.open(encoding="utf-8", newline="") as file:
        return tuple(map(_read, csv.DictReader(file)))


def _read(row: dict[str, str]) -> Published:
    number = {name: int(row[name]) for name in ("devices", "batch", "prompt", "answer")}
    precision = row["precision"]
    options = {
        name: int(value) for name, value in (each.split("=") for each in row["options"].split())
    }
    one_cache = precision in ("fp8", "fp16") and "experts" not in options
    service = read_service(
        {
            "model": row["model"],
            "machine": row["machine"],
            "service": {
                "devices": number["devices"],
                "precision": precision,
                "cache_precision": precision if one_cache else "bf16",
                "batch": number["batch"] or MOST,
                "replicas": options.get("experts", 1),
                **options,
            },
            "requests": {"rate": 0, "prompt": number["prompt"], "answer": number["answer"]},
        }
    )
    scored, value = row["use"] == "scored", float(row["value"])
    return Published(
        row["id"], row["source"], service, row["quantity"], value, scored, row["notes"]
    )
