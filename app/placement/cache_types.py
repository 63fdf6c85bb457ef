"""Types of the KV cache that hold blocks of values with a scale of their own."""

QUANTISED_TYPES = frozenset({"q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1"})
