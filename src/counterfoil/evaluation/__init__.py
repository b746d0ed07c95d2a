"""Evaluating models on a set: two-choice questions to vision-language models, and how their answers are read."""
