"""Bugs of ``prove --locate``: what a rank compares with which part of the serial run, and in which order."""

from __future__ import annotations

from backends.first_difference import first_difference
from tests.backends.first_difference_laws import (
    Fault,
    Ranks,
    agrees,
    names_a_missing_sum,
    names_the_fault,
    sees_every_layer,
)
from tests.bugs.bug import Bug

# Laws


def shares_of_a_batch_agree() -> None:
    agrees("data, few samples")


def shares_of_features_agree() -> None:
    agrees("column, row")


def shares_of_tokens_agree() -> None:
    agrees("ring")


def stages_agree() -> None:
    agrees("1f1b")
    agrees("layer-wise")


def every_layer_is_seen() -> None:
    sees_every_layer(first_difference, "data, ReLU", layers=3)


def faults_of_layers_are_named() -> None:
    for kind in ("forward", "backward"):
        names_the_fault(first_difference, Ranks(2, 2, 1, 2), Fault(kind, 4, 3, 5), 6)


def faults_of_weights_are_named() -> None:
    names_the_fault(first_difference, Ranks(2, 1, 2, 1), Fault("weight", 1, 2, 3), 5)


def sums_that_are_missing_are_named() -> None:
    names_a_missing_sum(first_difference)


# Bugs

BUGS = [
    Bug("every rank compares the first rows", "SerialTensors.part", "whole[list(record.places)]",
        "whole[: len(record.places)]", shares_of_a_batch_agree, "forward of layer|input of|what leads"),
    Bug("what is split is not compared", "Record.part_of", "in self.shards:", "in ():",
        shares_of_features_agree, "leaves much out"),
    Bug("every rank compares the first tokens", "Record.part_of", "self.tokens.own]",
        ": len(self.tokens.own)]", shares_of_tokens_agree, "elements on 0 ranks"),
    Bug("a placeholder is taken for its layer", "recording.serial_names",
        "not isinstance(module, Placeholder) and ", "", stages_agree, "layer"),
    Bug("layers that compute together are not seen", "Sequential.forward_range",
        "i + 1 if alone else stop", "stop", every_layer_is_seen, "compared"),
    Bug("a wrapper of layers is taken for the model", "recording.serial_names",
        "if passes_on else [module]", "if False else [module]", stages_agree, "leaves much out"),
    Bug("the way back is taken before the way there", "SerialTensors.__init__",
        "event[0] == BACKWARD)", "event[0] == FORWARD)", faults_of_layers_are_named, "Fault"),
    Bug("a micro-batch has the number of its first sample", "first_difference.verdicts",
        "micro = parts.index(places) if places else 0", "micro = places[0] if places else 0",
        faults_of_layers_are_named, "Fault"),
    Bug("any sum of terms is the gradient", "is_multiple",
        "0 < times <= max(most, 1) and distance(times * gradient, total, 0.0)[1] <= bound", "times > 0",
        faults_of_weights_are_named, "Fault"),
    Bug("gradients are not noted before ranks reduce them", "forward_pass.observed",
        "observer.gradient(parameter)", "pass", sums_that_are_missing_are_named, "before ranks reduce"),
]  # fmt: skip
