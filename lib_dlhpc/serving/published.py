"""Published measurements of serving, beside their predictions.

catalog/published/serving.csv has the rows with their sources. A row that is illustrative has an effect that the model
does not price; its note names it. No parameter was fitted to any row, but the test was not blind: some of the model was
changed after the rows had been seen (docs/guide/serve.md).
"""

import csv
from dataclasses import dataclass
from functools import cache, cached_property

from lib_dlhpc.serving.predict import predict_service
from lib_dlhpc.serving.price import Prices
from lib_dlhpc.serving.service import Service, read_service
from lib_dlhpc.spec.catalog import ROOT

FILE = ROOT / "published" / "serving.csv"
MOST = 2048  # sequences in a batch of a server that states no limit: TensorRT-LLM's default
BAND = 0.6  # of a scored row: predicted over published is at most 1.6, and at least 1 / 1.6


@dataclass(frozen=True, repr=False)
class Published:
    """A measurement that someone published: a service, and one number of it.

    quantity: tokens_per_second of a replica, tokens_per_second_device, decode_tokens_per_second without prompts, or
    first_token_ms.
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
        first = prices.prompts(serving.batch, load.prompt)
        both = first + prices.answers(serving.batch, load.prompt, load.answer)
        return serving.batch * load.answer / both.total / serving.devices

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
    cache_precision = precision if precision in ("fp8", "fp16") else "bf16"
    service = read_service(
        {
            "model": row["model"],
            "machine": row["machine"],
            "service": {
                "devices": number["devices"],
                "precision": precision,
                "cache_precision": cache_precision,
                "batch": number["batch"] or MOST,
            },
            "requests": {"rate": 0, "prompt": number["prompt"], "answer": number["answer"]},
        }
    )
    scored, value = row["use"] == "scored", float(row["value"])
    return Published(
        row["id"], row["source"], service, row["quantity"], value, scored, row["notes"]
    )
