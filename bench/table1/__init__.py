"""Table 1's first two rows for real: MNIST with a LeNet, CIFAR-10 with a ResNet-18. See docs/howto/published-tables.md."""
