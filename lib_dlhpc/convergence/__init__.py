"""Epochs to an accuracy: what a batch, and settings that change what a network learns, cost; loss by size and tokens.

critical_batch.py the critical-batch law, fitted to runs of which some never arrived
workloads.py      measured workloads, a file of catalog/workloads each
accuracy_costs.py measured costs in accuracy of compression, formats, local and asynchronous updates
epochs.py         epochs to a target at a batch: an interval, or a refusal with its reason
assessment.py     the same for an experiment with its compression, local updates, formats; what a plan may change
held_out.py       how good the law is at a batch that it has not seen
loss_law.py       loss of a language model by weights and tokens: published scaling laws, the best split of a budget
"""

from lib_dlhpc.convergence.assessment import Verdict, changed, epochs_of, verdict
from lib_dlhpc.convergence.epochs import Epochs, epochs_to
from lib_dlhpc.convergence.loss_law import LAWS, LossLaw, Split

__all__ = [
    "LAWS",
    "Epochs",
    "LossLaw",
    "Split",
    "Verdict",
    "changed",
    "epochs_of",
    "epochs_to",
    "verdict",
]
