"""Serving a language model: what an answer costs, predicted, simulated and decoded for real.

service.py             Service: a model, a machine, how it is served, which requests come; read_service
shard.py               what one device of a replica holds and computes for a token
kv_cache.py            bytes of a sequence in the KV cache, and what attention reads of it, by kind of attention
wide_experts.py        experts spread over replicas: what each holds, and exchanges of tokens
speculate.py           speculative decoding: the tokens of a step, expected and drawn
price.py               the price of a step: some tokens of prompts, and one token of each sequence
predict.py             predict_service: bytes, times and costs in closed form
prefix.py              stored keys and values of prompts that begin alike: how many requests find them; PrefixCache
pools.py               replicas that only read prompts, and the way of a cache to those that decode
queueing.py            the wait for a place, and the batch that a load settles at
load.py                the steady state at a rate of requests: batch, wait
scheduler.py           continuous and static batching: which requests are in the next step
simulate.py            simulate_service: every request and every step
rollouts.py            predict_iteration: answers generated, scored and learned from, in turn or one step behind
decoder.py             decode, Decoder: a language model in numpy, with a cache of keys and values
speculative_decoder.py decode_with_draft: a small decoder drafts, a large one verifies
run.py                 run_service: the same requests, decoded for real
measure.py             on_this_machine: a service with the measured times of this machine's decoder
published.py           published(): measurements of others, beside their predictions
"""

from lib_dlhpc.serving.decoder import Decoder, decode
from lib_dlhpc.serving.load import Load
from lib_dlhpc.serving.measure import on_this_machine
from lib_dlhpc.serving.pools import Pools
from lib_dlhpc.serving.predict import Point, ServicePrediction, predict_service
from lib_dlhpc.serving.prefix import PrefixCache, Reuse
from lib_dlhpc.serving.price import Chunk, Prices, StepTime
from lib_dlhpc.serving.published import Published, published
from lib_dlhpc.serving.rollouts import Generation, Iteration, generate, predict_iteration
from lib_dlhpc.serving.run import run_service
from lib_dlhpc.serving.service import Drafting, Requests, Service, Serving, read_service
from lib_dlhpc.serving.simulate import ServiceTrace, simulate_service
from lib_dlhpc.serving.speculative_decoder import decode_with_draft

__all__ = [
    "Chunk",
    "Decoder",
    "Drafting",
    "Generation",
    "Iteration",
    "Load",
    "Point",
    "Pools",
    "PrefixCache",
    "Prices",
    "Published",
    "Requests",
    "Reuse",
    "Service",
    "ServicePrediction",
    "ServiceTrace",
    "Serving",
    "StepTime",
    "decode",
    "decode_with_draft",
    "generate",
    "on_this_machine",
    "predict_iteration",
    "predict_service",
    "published",
    "read_service",
    "run_service",
    "simulate_service",
]
