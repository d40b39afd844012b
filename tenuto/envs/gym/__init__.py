"""Environments outside of the compiled program: Gymnasium's, and Atari games."""
