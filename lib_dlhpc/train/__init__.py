"""Training for real: numpy layers, optimisers and MPI; the networks are the models that predict prices.

layers/     each with a forward and a backward pass
network.py  a model that can be trained: one array of weights, one of gradients
loss.py     cross-entropy, mean squared error
"""
