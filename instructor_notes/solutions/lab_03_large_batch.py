"""Lab 3, tune the large batch: choices that reach the target, and mistakes by name."""

# (rule, rate, warm-up in epochs, decay)
CHOICE = ("lars", 10.0, 8.0, "quadratic")
OTHERS = (("lamb", 0.02, 8.0, "quadratic"), ("adam", 0.01, 4.0, "cosine"))  # reach it as well

# mistake -> (choice, words that the answer must hold)
MISTAKES = {
    "linear scaling to 32 times": (("momentum", 0.64, 8.0, "quadratic"), "Collapsed|Diverged"),
    "the rate of the small batch": (("momentum", 0.02, 8.0, "quadratic"), "points short"),
    "the rate of SGD for LARS": (
        ("lars", 0.02, 8.0, "quadratic"),
        "What does the rate of lars multiply",
    ),
}
