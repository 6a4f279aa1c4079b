"""The theory of keep rules: statements with proofs, certificates and an adversary, in float64 numpy.

It imports nothing of the package but its errors, so it is an independent oracle for the rules and the simulator.
"""
