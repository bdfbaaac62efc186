"""Recurrent networks: an LSTM language model, and FRNN, which predicts disruptions in fusion reactors."""

from lib_dlhpc.spec.networks.builder import Builder
from lib_dlhpc.spec.networks.family import family


@family
def lstm_language_model(
    layers: int = 2,
    hidden: int = 650,
    sequence: int = 35,
    vocabulary: int = 10000,
    dropout: float = 0.5,
) -> Builder:
    """Word-level language model (Zaremba et al. 2014); one sample is a sequence of `sequence` words."""
    net = Builder(sequence)
    net.embedding(vocabulary, hidden)
    net.dropout(dropout, keep=True)
    for _ in range(layers):
        net.lstm(hidden)
        net.dropout(dropout)
    net.dense(vocabulary, fp32=True, name="logits")
    return net


@family
def frnn(signals: int = 14, steps: int = 128, layers: int = 2, hidden: int = 200) -> Builder:
    """Fusion RNN (Kates-Harbeck et al. 2019): `signals` in, a disruption score out at each step."""
    net = Builder(steps, signals)
    for _ in range(layers):
        net.lstm(hidden)
        net.dropout(0.1)
    net.dense(1)
    return net
