"""The layers of split models, and the tensors between them."""
