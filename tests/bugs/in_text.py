"""Bugs of texts and their losses, of what a model writes, and of what a net says of its inputs."""

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from minigrad import generate, metric, models, sample, text, train
from minigrad.serial import Serial
from minigrad.work import Work
from tests.bugs.bug import Bug
from tests.minigrad import text_laws, tokens_laws

CONTENT = b"the cat sat on a mat, and a rat had a hat"

# Laws


def each_symbol_predicts_the_next() -> None:
    for n, length in ((9, 4), (9, 3), (12, 5)):
        text_laws.each_symbol_predicts_the_next(text.rows, n, length)


def parts_are_those_of_the_text() -> None:
    with TemporaryDirectory() as folder:
        text_laws.parts_are_those_of_the_text(text.text, Path(folder, "t"), CONTENT, 3)


def simple_rules_are_counted() -> None:
    with TemporaryDirectory() as folder:
        text_laws.simple_rules_are_counted(text.text, Path(folder, "t"), CONTENT, 3)


def one_symbol_has_no_loss() -> None:
    with TemporaryDirectory() as folder:
        text_laws.simple_rules_are_counted(text.text, Path(folder, "t"), b"a" * 11, 1)


LENGTHS = [5, 7, 3, 12, 1, 2, 9]  # of documents, in rows of 12


def documents_are_alone() -> None:
    tokens_laws.documents_are_alone(tokens_laws.evaluation, LENGTHS, 0)


def a_step_is_that_of_the_documents() -> None:
    for serial in (Serial(1), Serial(2)):

        def run(work: Work, serial: Serial = serial) -> float:
            return serial.step(work.model, work.batch, work.loss_fn)

        tokens_laws.trains_documents_alone(run, LENGTHS, 0)


def a_symbol_is_refused_with_its_place() -> None:
    text_laws.symbols_have_numbers_or_are_refused(text.numbers_of, CONTENT, b"a?b!")


def a_loss_is_a_mean_over_symbols() -> None:
    for seed in range(6):
        text_laws.a_metric_is_a_mean_over_symbols(metric.NATS, seed)


def accuracy_is_of_one_label_a_sample() -> None:
    text_laws.accuracy_is_of_one_label_a_sample(train.accuracy)


def a_text_is_written_by_the_scores() -> None:
    for seed in range(6):
        for temperature in (0.0, 0.5, 2.0):
            text_laws.writes_by_the_scores(generate.generate, seed, temperature)


def inputs_have_the_dtype_of_a_net_or_are_integers() -> None:
    text_laws.inputs_have_the_dtype_of_a_net_or_are_integers(sample.inputs_of, np.float64)


def a_net_takes_its_own_data() -> None:
    small = models.NETS["transformer"].resized(width=8, heads=2, blocks=1)
    for net in (small, small.resized(length=16), models.NETS["sigmoid"]):
        text_laws.a_net_takes_its_own_data(net, np.float64)


# Bugs

BUGS = [
    Bug("documents of a row see one another", "Tokens.self_attention",
        'masks.setdefault("documents", self.document)', "pass", documents_are_alone, "Not equal"),
    Bug("places run on through a row", "token_embedding.places_of", "tokens.places(symbols)",
        "tokens.places(symbols) * 0 + range(symbols[1])", documents_are_alone, "Not equal"),
    Bug("an evaluation forgets the documents", "Batch.evaluation_pass", "tokens=self.tokens", "tokens=None",
        documents_are_alone, "Not equal"),
    Bug("a step forgets the documents", "Batch.whole", ", tokens=self.tokens", "",
        a_step_is_that_of_the_documents, "Error"),
    Bug("a micro-batch has the documents of the first rows", "Batch.__getitem__", "self.tokens[rows]",
        "self.tokens[: len(places)]", a_step_is_that_of_the_documents, "Error"),
    Bug("targets are shifted by two", "text.rows", "numbers[:-1], numbers[1:]",
        "numbers[:-1], np.roll(numbers, -2)[:-1]", each_symbol_predicts_the_next, "place 0 of 9"),
    Bug("targets are the inputs", "text.rows", "numbers[:-1], numbers[1:]", "numbers[:-1], numbers[:-1]",
        each_symbol_predicts_the_next, "place 0 of 9"),
    Bug("padding is a symbol", "text.rows", "np.full(n * length, PADDING)", "np.zeros(n * length, np.int64)",
        each_symbol_predicts_the_next, r"has \(0, 0\), not \(0, -1\)"),
    Bug("the last row is dropped", "text.rows", "-(-(len(numbers) - 1) // length)",
        "(len(numbers) - 1) // length", each_symbol_predicts_the_next, ""),
    Bug("the test part overlaps the training part", "text.text", "numbers[cut:]", "numbers[cut - 5 :]",
        parts_are_those_of_the_text, "cat sat"),
    Bug("the test part is the training part", "text.text", "rows(numbers[cut:], length)",
        "rows(numbers[:cut], length)", parts_are_those_of_the_text, "cat sat"),
    Bug("symbols are in the order of the text", "text.text", "sorted(set(content))", "dict.fromkeys(content)",
        parts_are_those_of_the_text, ""),
    Bug("pairs are counted once", "text.pairs", "np.add.at(counts, (data.x[counted], data.y[counted]), 1)",
        "counts[data.x[counted], data.y[counted]] += 1", simple_rules_are_counted, "Mismatched"),
    Bug("a new pair is impossible", "text.pairs_loss", "(counts + 1.0) /", "(counts + 1e-9) /",
        simple_rules_are_counted, "Mismatched"),
    Bug("pairs are shares of the symbol that follows", "text.pairs_loss", "sum(axis=1", "sum(axis=0",
        simple_rules_are_counted, "Mismatched"),
    Bug("letters are those before, not those that follow", "text.letters_loss", "counts.sum(axis=0)",
        "counts.sum(axis=1)", simple_rules_are_counted, "Mismatched"),
    Bug("the last unknown symbol is named", "text.numbers_of", "int(others[0])", "int(others[-1])",
        a_symbol_is_refused_with_its_place, "at place"),
    Bug("unknown symbols are the first one", "text.numbers_of", "np.full(256, PADDING)", "np.zeros(256, int)",
        a_symbol_is_refused_with_its_place, "was not refused"),
    Bug("the mean of a text is over its rows", "train.mean_loss", "float(loss_fn.divisor(part.y))",
        "len(part)", a_loss_is_a_mean_over_symbols, "not"),
    Bug("the last part of a text is not tested", "train.mean_loss", "range(0, len(data), batch_size)",
        "range(0, len(data) - batch_size, batch_size)", a_loss_is_a_mean_over_symbols, "not"),
    Bug("an accuracy is along the axis of symbols", "train.accuracy", "if scores.ndim != 2:", "if False:",
        accuracy_is_of_one_label_a_sample, "was|were not refused|broadcast"),
    Bug("one symbol has less than no entropy", "text.letters_loss", "return 0.0 - float(", "return -float(",
        one_symbol_has_no_loss, "-0 nats"),
    Bug("a model sees the first symbols", "generate.generate", "row[-length:]", "row[:length]",
        a_text_is_written_by_the_scores, ""),
    Bug("a temperature makes unlikely symbols rarer", "generate.drawn", "scores / temperature",
        "scores * temperature", a_text_is_written_by_the_scores, "after"),
    Bug("the coldest symbol is the unlikeliest", "generate.drawn", "scores.argmax()", "scores.argmin()",
        a_text_is_written_by_the_scores, "after"),
    Bug("the first symbol of a row goes on", "generate.generate", "[0, -1]", "[0, 0]",
        a_text_is_written_by_the_scores, "after"),
    Bug("symbols are numbers with a point", "sample.inputs_of", "zeros(shape, np.int64)", "zeros(shape)",
        inputs_have_the_dtype_of_a_net_or_are_integers, ""),
    Bug("a sample has the dtype of the host", "sample.inputs_of", ", dtype=like.dtype", ", dtype=np.float32",
        inputs_have_the_dtype_of_a_net_or_are_integers, ""),
    Bug("symbols get the dtype of a training", "Net.prepare", ' if data.x.dtype.kind == "f" else data.x',
        "", a_net_takes_its_own_data, "float64"),
    Bug("a net keeps the length of its samples", "Net.resized", '(sizes["length"],)', "self.sample",
        a_net_takes_its_own_data, ""),
]  # fmt: skip
