"""Lab 15: the memory of fine-tuning with adapters, and the model size for a budget of GPUs and days.

tuning_laws.py   weights of adapters, bits of a quantized weight, bytes of fine-tuning and of full training
size_laws.py     tokens within a budget, and the size with the lowest loss that fits
"""
