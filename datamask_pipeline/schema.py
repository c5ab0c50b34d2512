"""The Arrow schema of every table in the record, each column described once. Knows no stage and no file.

A description stands in its Arrow field, so every Parquet file of the record carries those of its own columns. Content
digests and comparisons of schemas take names and types only.
"""

import dataclasses
from typing import Final

import pyarrow as pa

EMBEDDING_DIM: Final = 768

#: Tasks of rows that are documents, not questions: those that the pool holds out, a plain sample; and curated ones.
HELD_OUT: Final = "held_out_documents"
CURATED: Final = "curated_documents"
OF_DOCUMENTS: Final = (HELD_OUT, CURATED)

#: What a vector's numbers are stored as.
EMBEDDING_DTYPE: Final = "float16"


def column(
    name: str, kind: pa.DataType, meaning: str, *, unit: str | None = None, formula: str | None = None
) -> pa.Field:
    """A column with its description.

    Args:
        name: Its name.
        kind: Its type.
        meaning: What it says of the row, and what a null means where there can be one.
        unit: Unit or range of its numbers.
        formula: How it is computed, or who states it.
    """
    about = {"description": meaning, "unit": unit, "formula": formula}
    return pa.field(name, kind, metadata={key: value for key, value in about.items() if value is not None})


def description(field: pa.Field) -> str | None:
    """Meaning, unit and formula of a column as one text; ``None`` where it carries none."""
    about = field.metadata or {}
    if b"description" not in about:
        return None
    named = {"unit": "Unit", "formula": "Formula or source"}
    more = [
        f"{title}: {about[key.encode()].decode()}." for key, title in named.items() if key.encode() in about
    ]
    return " ".join([about[b"description"].decode(), *more])


TEXT, INTEGER, NUMBER, FLAG = pa.string(), pa.int64(), pa.float64(), pa.bool_()

#: The nine columns of FineWeb, in its order.
FINEWEB: Final = pa.schema(
    [
        column("text", TEXT, "The document, as it came."),
        column("id", TEXT, "The document's id, as it came.", formula="FineWeb: the WARC record's id"),
        column("dump", TEXT, "The crawl, as the source calls it."),
        column("url", TEXT, "Where the document was fetched."),
        column("date", TEXT, "When it was fetched, as the source writes it.", formula="FineWeb: ISO 8601"),
        column("file_path", TEXT, "The archive that the source took it from."),
        column(
            "language", TEXT, "Its language, as the source states it.", formula="FineWeb: ISO 639 by fastText"
        ),
        column("language_score", NUMBER, "How sure the source is of the language.", unit="0 to 1"),
        column(
            "token_count", INTEGER, "Its length.", unit="tokens of the source's tokenizer; FineWeb: GPT-2"
        ),
    ]
)

_CRAWL = column("crawl", TEXT, "The crawl that it was ingested from: key of the per-crawl artefacts.")
_SHARD = column("shard", TEXT, "The crawl's file, by the name of its part.")
_ROW = column(
    "row",
    INTEGER,
    "Row of that file; of JSON Lines a line, where blank ones are not counted.",
    unit="counted from 0",
)
_ID = column("id", TEXT, "The document's id; with `crawl`, it finds the document in every table.")
_CONTENT_HASH = column(
    "content_hash",
    TEXT,
    "Equal for documents whose texts differ in ASCII white space or Unicode composition alone.",
    formula="hexadecimal SHA-256 of the text in Unicode NFC without ASCII white space",
)

#: What ingestion adds to a document: where it came from and what it says.
PROVENANCE: Final = pa.schema([_CRAWL, _SHARD, _ROW, _CONTENT_HASH])

#: A document as ingested; columns that a source has beyond these follow after them.
DOCUMENTS: Final = pa.schema([*FINEWEB, *PROVENANCE])


def source_column(field: pa.Field) -> pa.Field:
    """A column that only the source has, with a description."""
    return (
        field if description(field) else column(field.name, field.type, "A column of the source, as it came.")
    )


#: What JSON Lines hold beyond the declared columns.
EXTRA_JSON: Final = column(
    "extra_json", TEXT, "The line's undeclared fields, as one JSON object; null: none."
)

REJECTED: Final = pa.schema(
    [
        _CRAWL,
        _SHARD,
        _ROW,
        column("id", TEXT, "The row's id; null where it has none that can be read."),
        column("reason", TEXT, "Why it is no document.", formula="`sources/filters.py` lists all reasons"),
        column(
            "detail",
            TEXT,
            "The field that decided, with type and length, or its value if a number or short code; never a text or URL.",
        ),
    ]
)

#: Whose vectors stand in the array beside the part, row by row; ``score_column`` of each head follows.
EMBEDDINGS: Final = pa.schema([_ID, _CONTENT_HASH])


#: Before a scorer's name, where its score is a column of its own.
SCORE_PREFIX: Final = "score_"


def score_column(scorer: str) -> pa.Field:
    """The score of one scorer as a column of its own."""
    return column(
        f"{SCORE_PREFIX}{scorer}",
        NUMBER,
        f"Score of `{scorer}`; null: it has none.",
        unit="the scorer's scale, higher is better",
    )


SCORES: Final = pa.schema(
    [
        _ID,
        column("scorer", TEXT, "The scorer, by its name or label."),
        column(
            "score", NUMBER, "Its score; null: `reason` says why.", unit="from `scale_min` to `scale_max`"
        ),
        column("scale_min", NUMBER, "The lowest score there can be; null: no such limit."),
        column("scale_max", NUMBER, "The highest score there can be; null: no such limit. Higher is better."),
        column("model", TEXT, "What computed the score."),
        column("revision", TEXT, "The revision of that."),
        column("reason", TEXT, "Why there is no score; null: there is one."),
    ]
)

_NUM_COPIES = column(
    "num_copies",
    INTEGER,
    "Documents with this content, this one among them, in the first release that its crawl was taken into; where "
    "near-duplicates are collapsed, of the whole group.",
    unit="documents",
)

_POSITION = column(
    "position",
    INTEGER,
    "Place in the release's canonical order: crawls as the release lists them, shards by name, rows.",
    unit="counted from 0",
)
_DOMAIN = column(
    "domain", TEXT, "Host of the URL in lower case and ASCII, without `www.`; empty: no URL with a host."
)
_TOKEN_COUNT = column(
    "token_count", INTEGER, "The document's length, as ingested.", unit="tokens of the source"
)

CANDIDATES: Final = pa.schema(
    [
        _POSITION,
        _CRAWL,
        _SHARD,
        _ROW,
        _ID,
        _CONTENT_HASH,
        _DOMAIN,
        _TOKEN_COUNT,
        _NUM_COPIES,
        column("representative_crawl", TEXT, "Crawl of the copy that stands for this content."),
        column("representative_id", TEXT, "Id of the copy that stands for this content."),
        column("eligible", FLAG, "Whether an arm may select it."),
        column("validation", FLAG, "Whether it is held out of every arm, for validation."),
        column(
            "exclusion",
            TEXT,
            "Why it is not eligible; null: it is.",
            formula="the first that holds of takedown, near_duplicate, duplicate_content, duplicate_id, validation, "
            "contaminated",
        ),
    ]
)

#: Texts of the questions and curated documents that what is selected shall not hold.
QUESTION_TEXTS: Final = pa.schema(
    [
        column("task", TEXT, "The benchmark; `curated_documents` for a curated document."),
        column(
            "question",
            INTEGER,
            "Row of the question, or document, among the task's usable ones.",
            unit="counted from 0",
        ),
        column("text", TEXT, "One of its texts: the question, one of its choices, ...; the document."),
    ]
)
#: What is asked to be withdrawn from a release, one entry of its list a row, or one host of a robots snapshot.
TAKEDOWN: Final = pa.schema(
    [
        column(
            "entry", TEXT, "The entry as `pool.takedown` would spell it; of a robots snapshot, `robots:HOST`."
        ),
        column(
            "kind",
            TEXT,
            "What it names documents by.",
            formula="`name` (id or content hash), `id`, `content`, `url`, `domain`, `suffix` or `robots`; `hidden` or "
            "`hidden_url` where what it named was purged; `text`: the content of a document that the entry names in a crawl "
            "outside the release, and that documents of the release have too",
        ),
        column("host", TEXT, "Host of a URL prefix, domain or host of a robots.txt; null: it names none."),
        column(
            "value",
            TEXT,
            "Id, content hash, or what of a URL follows its host; of a hidden one its salted hash; of a text its content "
            "hash; null: nothing more.",
        ),
        column("robots", TEXT, "The host's robots.txt in the snapshot; null: it is none."),
    ]
)

#: Stands in the index and in the subset of a release whose near-copies were collapsed.
NUM_NEAR_COPIES: Final = column(
    "num_near_copies",
    INTEGER,
    "Eligible documents in its group of near-copies, this one among them, in the first release that its crawl was taken "
    "into; 1: none is near.",
    unit="documents",
)

NEAR_COPIES: Final = pa.schema(
    [
        _POSITION,
        _CRAWL,
        _ID,
        column(
            "near_copy_of_crawl",
            TEXT,
            "Crawl of the earlier document that stands for it; null: it stands for itself.",
        ),
        column(
            "near_copy_of", TEXT, "Id of the earlier document that stands for it; null: it stands for itself."
        ),
        column(
            "cosine",
            NUMBER,
            "Cosine of the two embeddings; null: it stands for itself.",
            unit="`copies.threshold` to 1",
        ),
        NUM_NEAR_COPIES,
    ]
)

#: Where an eligible document's vector lies; ``NUM_NEAR_COPIES`` may follow, then ``score_column`` of each scorer.
RELEASE_INDEX: Final = pa.schema(
    [
        _POSITION,
        _CRAWL,
        _ID,
        column("shard", TEXT, "The part of the crawl's embeddings beside whose array it stands."),
        column("row", INTEGER, "Row of its vector in that part's array.", unit="counted from 0"),
        _DOMAIN,
        _TOKEN_COUNT,
    ]
)

_QUALITY = column(
    "quality",
    NUMBER,
    "The arm's quality of the document.",
    formula="sum_s w_s norm(score_s) / sum_s |w_s|; norm: rank from 0 to 1 (the default), z-score or none",
)
_LOGIT = column(
    "logit",
    NUMBER,
    "Log-odds of `probability`. Where that is 0 or 1: 40 to 41 below or above zero, by rank of the policy's score.",
    unit="log-odds",
    formula="log(p / (1 - p)), cut at -40 and 40",
)
_PROBABILITY = column(
    "probability", NUMBER, "The policy's probability of including the document.", unit="0 to 1"
)

SELECTION: Final = pa.schema(
    [
        _POSITION,
        _CRAWL,
        _ID,
        column("selected", FLAG, "Whether the arm's subset holds it."),
        _LOGIT,
        _PROBABILITY,
        _QUALITY,
        column(
            "quality_marginal",
            NUMBER,
            "What the document adds to the objective by its quality; null: unknown.",
            unit="normalised objective",
            formula="weight of the quality term x (quality - its 0) / (its 1 - its 0) / documents selected, held ones too",
        ),
        column(
            "diversity_marginal",
            NUMBER,
            "What the document adds to the objective by diversity, given the others selected; null: unknown.",
            unit="normalised objective",
            formula="weighted change of the diversity terms when the document moves",
        ),
        column(
            "threshold",
            NUMBER,
            "What as many documents of its block reach as are selected: of the total marginal, or of quality or logit "
            "where the reason says so; null: no threshold decided.",
            unit="normalised objective; of logits log-odds",
        ),
        column("reason", TEXT, "Why it is in or out.", formula="`selection/reasons.py` lists all reasons"),
    ]
)

#: What a selection's bound is computed from: `<name>.npy` beside its part, one number a row in the part's order; a file
#: that no block of the selection needs is not there.
CERTIFICATE: Final = pa.schema(
    [
        column(
            "tangent",
            NUMBER,
            "The weights at whose moments the tangent gave the bound of a metric of moments: a relaxed mask, or where only "
            "first moments count some of either sign; NaN: pruned by quality, or of a block without such a bound.",
            unit="sums to the budget",
            formula="of the learner's step with the smallest bound",
        ),
        column(
            "dual",
            NUMBER,
            "The document's dual variable, as a reference of a coverage metric; NaN: pruned by quality, or of a block "
            "without such a bound.",
            unit="cosine, not below 0",
            formula="no mask exceeds weight x mean(u) + the largest sum of linear + weight x mean(max(0, similarity - u))",
        ),
    ]
)

#: What bounds along a graph were computed from: `cliques.parquet` beside the part of a selection, a row a member.
CLIQUES: Final = pa.schema(
    [
        column("clique", INTEGER, "The number of the clique, from 0 on."),
        column("row", INTEGER, "A member: a row of the part."),
        column(
            "weight",
            NUMBER,
            "What each pair of the clique has of the similarity of its edge; all cliques of an edge have no more than that.",
            unit="cosine, above 0",
        ),
        column(
            "slope",
            NUMBER,
            "t: of n selected members n (n - 1) / 2 pairs are selected, and that is at least t n - the most that "
            "t j - j (j - 1) / 2 is for a whole j.",
            unit="0 or more",
            formula="no mask exceeds the largest sum of linear - what cliques take of each member + what they give back",
        ),
    ]
)

#: A policy tells some of these at a step, and null stands for the others; what else it tells follows.
LEARNING_CURVE: Final = pa.schema(
    [
        column("step", INTEGER, "Step or epoch of the learner.", unit="steps"),
        column(
            "objective",
            NUMBER,
            "Value of the mask, or mean reward of the masks sampled.",
            unit="normalised: 0 is the mean of random masks, 1 the best of each term alone",
        ),
        column(
            "bound",
            NUMBER,
            "No mask exceeds this beyond float32 rounding; null: not known at this step.",
            unit="normalised objective",
        ),
        column(
            "gap",
            NUMBER,
            "How far the mask may be from the best.",
            unit="share of the distance from random to the bound",
            formula="(bound - objective) / (bound - random)",
        ),
        column(
            "reward_deviation",
            NUMBER,
            "Standard deviation of the sampled masks' rewards.",
            unit="normalised objective",
        ),
        column("learning_rate", NUMBER, "Learning rate of the step."),
        column("update_norm", NUMBER, "Euclidean norm of the step's change of logits.", unit="logits"),
        column("block", INTEGER, "Block of documents that were selected together.", unit="counted from 0"),
    ]
)


def curve_schema(names: list[str]) -> pa.Schema:
    """Columns of a learning curve of which a policy told those of the names given."""
    strangers = [name for name in names if name not in LEARNING_CURVE.names]
    return pa.schema([*LEARNING_CURVE, *(column(name, NUMBER, "Told by the policy.") for name in strangers)])


#: Columns the subset carries beside the document's own; ``score_column`` of every scorer follows.
SUBSET_EXTRA: Final = pa.schema(
    [
        _QUALITY,
        _LOGIT,
        _PROBABILITY,
        _NUM_COPIES,
        column("release", TEXT, "The release."),
        column("arm", TEXT, "The arm that selected it."),
        column(
            "selection_id", TEXT, "The mask.", formula="first 16 digits of the selection's content digest"
        ),
    ]
)

#: What whoever reads a figure of coverage has to know.
ABOUT_COVERAGE: Final = (
    "Of all metrics Facility alone seeks coverage: no other arm was made for it. Documents drawn by lot cover their pool "
    "well, and those that keep apart from each other, as Pair_simi asks, cover less."
)
#: What can be said of a subset without training on it.
REDUNDANCY: Final = pa.schema(
    [
        column("documents", INTEGER, "Documents of the subset.", unit="documents"),
        column(
            "tokens",
            INTEGER,
            "Their length, as ingested, of those that state one.",
            unit="tokens of the source",
        ),
        column("without_tokens", INTEGER, "Documents of the subset that state no length.", unit="documents"),
        column(
            "exact_copies",
            INTEGER,
            "Documents with the content of an earlier one of the subset.",
            unit="documents",
        ),
        column(
            "near_copies",
            INTEGER,
            "Documents whose embedding has a cosine of at least `near_copy_cosine` to that of an earlier one of the subset "
            "which is no near-copy itself.",
            unit="documents",
        ),
        column("near_copy_cosine", NUMBER, "The least cosine of near-copies.", unit="-1 to 1"),
        column(
            "near_copy_recall",
            NUMBER,
            "Share of pairs at that cosine that are expected to be found; 1 where every pair is compared.",
            unit="0 to 1",
        ),
        column(
            "quality_rank",
            NUMBER,
            "Mean rank of the subset's documents by the arm's quality, among all that the arm could select; random ones "
            "have about 0.5.",
            unit="0 to 1, higher is better",
        ),
        column(
            "coverage",
            NUMBER,
            "Mean of the largest cosine to a document of the subset, over all documents that the arm could select: those of "
            "the subset are among them, with 1.",
            unit="-1 to 1, higher covers better",
        ),
        column(
            "coverage_error",
            NUMBER,
            "Standard error of `coverage`, as only `coverage_documents` were compared; 0: all were.",
            unit="as `coverage`",
        ),
        column(
            "coverage_documents", INTEGER, "Documents compared, drawn without replacement.", unit="documents"
        ),
        column("pool_documents", INTEGER, "Documents that the arm could select.", unit="documents"),
    ]
)

#: What was asked: a question, or a document.
_ASKED: Final = (
    column(
        "task",
        TEXT,
        "The benchmark; `held_out_documents` for a document that no arm holds, `curated_documents` for a curated one.",
    ),
    column(
        "question_id",
        TEXT,
        "The question, equal for all models; the document's id, of a curated one the start of its text's SHA-256.",
    ),
)

#: What an n-gram model of an arm's documents says of each question, and of each held-out document.
NGRAM: Final = pa.schema(
    [
        column("release", TEXT, "The release."),
        column("arm", TEXT, "The arm that the model learnt from."),
        *_ASKED,
        column(
            "gold_bits",
            NUMBER,
            "Negative log-likelihood of the right answer given its prompt; of a document, of all of it with its end.",
            unit="bits",
        ),
        column(
            "gold_bytes",
            INTEGER,
            "Length of the right answer as it is scored, with the blank before it; of the document.",
            unit="bytes of UTF-8",
        ),
        column(
            "gold_probability",
            NUMBER,
            "Likelihood of the right answer as a share of those of all choices; null: a document, or an open question, "
            "which has none.",
            unit="0 to 1",
        ),
    ]
)

LOSS_CURVE: Final = pa.schema(
    [
        column("step", INTEGER, "Step of the optimiser.", unit="steps"),
        column(
            "tokens",
            INTEGER,
            "Training tokens seen so far, repetitions included.",
            unit="tokens of the release's tokenizer",
        ),
        column("learning_rate", NUMBER, "Learning rate of the step."),
        column("loss", NUMBER, "Mean training loss since the row before.", unit="nats per token"),
    ]
)

_OF_A_RUN: Final = (
    column("release", TEXT, "The release."),
    column("run", TEXT, "The model: `<arm>.<architecture>.seed<n>`."),
    column("arm", TEXT, "The arm whose subset it was trained on."),
    column("architecture", TEXT, "Its architecture."),
    column("seed", INTEGER, "Seed of its pretraining."),
    column("checkpoint", INTEGER, "Step of the optimiser at which its weights were kept.", unit="steps"),
    column("final", FLAG, "Whether it is one of the last checkpoints, whose mean is the model's result."),
)

RESULTS: Final = pa.schema(
    [
        *_OF_A_RUN,
        column("task", TEXT, "The benchmark."),
        column(
            "metric",
            TEXT,
            "The metric, as lm-eval calls it; of every task also `gold_bits_per_byte`, of tasks with choices "
            "`gold_probability`.",
        ),
        column(
            "value",
            NUMBER,
            "Its value: a mean over the questions; `gold_bits_per_byte` is all bits over all bytes.",
            unit="0 to 1, higher is better; bits per byte, lower is better",
        ),
        column(
            "stderr",
            NUMBER,
            "Standard error over the questions; null: none is stated, or there is one question.",
            unit="as `value`",
        ),
        column("n", INTEGER, "Questions asked.", unit="questions"),
        column("headline", FLAG, "Whether this metric stands for the benchmark."),
        column("chance", NUMBER, "What guessing would score; null for bits per byte.", unit="as `value`"),
        column("shots", INTEGER, "Solved examples before each question.", unit="examples"),
        column("version", TEXT, "Version of the task's definition."),
        column("question_source", TEXT, "Where the questions come from."),
        column("questions_digest", TEXT, "Digest of the questions: equal digests, the same questions."),
        column("num_prompts", INTEGER, "Prompts: every choice of a question is one.", unit="prompts"),
        column(
            "num_truncated", INTEGER, "Prompts that lost their beginning to fit the model.", unit="prompts"
        ),
        column("model_digest", TEXT, "The model.", formula="first 16 digits of its content digest"),
    ]
)

ANSWERS: Final = pa.schema(
    [
        *_OF_A_RUN,
        *_ASKED,
        column("metric", TEXT, "The benchmark's headline metric; null: a document, which has none."),
        column("value", NUMBER, "What the answer adds to it; null: a document.", unit="0 to 1"),
        column(
            "gold_bits",
            NUMBER,
            "Negative log-likelihood of the right answer given its prompt; of an open question, of its answer's value "
            "(TriviaQA), else of the first answer that is accepted; of a document, of all of it with its end.",
            unit="bits",
        ),
        column(
            "gold_bytes",
            INTEGER,
            "Length of the right answer as it is scored, with the blank before it; of the document.",
            unit="bytes of UTF-8",
        ),
        column(
            "gold_probability",
            NUMBER,
            "Likelihood of the right answer as a share of those of all choices; null: a document, or an open question, "
            "which has none.",
            unit="0 to 1",
        ),
    ]
)

#: What the manifest of a comparison says of an arm, under ``metadata.arms``.
REPORT_ARMS: Final = pa.schema(
    [
        column("arm", TEXT, "The arm."),
        column("documents", INTEGER, "Documents of its subset.", unit="documents"),
        column(
            "tokens",
            INTEGER,
            "Their length, with an end of text after each; null: no model was trained on it.",
            unit="tokens of the release's tokenizer",
        ),
        column(
            "objective",
            NUMBER,
            "Value of its mask; a mean over blocks, weighted by the documents selected, held ones included.",
            unit="the arm's own objective: comparable where `objective_of` is equal",
        ),
        column("objective_of", TEXT, "The function that `objective` is a value of."),
        column(
            "objective_random",
            NUMBER,
            "Mean value of random masks of the same budget.",
            unit="as `objective`",
        ),
        column(
            "gap",
            NUMBER,
            "How far the mask may be from the best; null: no certificate, or several blocks.",
            unit="share of the distance from random to the bound",
        ),
        column(
            "bits_per_byte",
            NUMBER,
            "Mean over the arm's models, of each over its last checkpoints, on held-out documents; null: not measured.",
            unit="bits per byte of UTF-8",
        ),
        column(
            "epochs",
            NUMBER,
            "How often its models read it, at most; above 1 it has fewer tokens than their budget; null: no model.",
            unit="times",
        ),
        column("runs", INTEGER, "Models of the arm.", unit="models"),
        column(
            "tasks",
            pa.map_(TEXT, NUMBER),
            "Each benchmark's headline metric: mean over the arm's models.",
            unit="0 to 1",
        ),
        column("mean", NUMBER, "Mean over the benchmarks of `tasks`.", unit="0 to 1"),
    ]
)

#: What it says of an arm against the baseline, under ``metadata.differences``.
REPORT_DIFFERENCES: Final = pa.schema(
    [
        column("arm", TEXT, "The arm."),
        column("architecture", TEXT, "The models' architecture."),
        column("task", TEXT, "The benchmark."),
        column(
            "difference",
            NUMBER,
            "Mean score less that of the baseline, over the same questions and seeds.",
            unit="as the benchmark's headline metric",
        ),
        column(
            "half_width",
            NUMBER,
            "Half of the 95 % interval of the difference; null: `no_interval` says why.",
            unit="as `difference`",
            formula="Student's t of the paired differences",
        ),
        column("interval", TEXT, "What the sample is: `seeds`, or `questions` where there is one seed."),
        column("no_interval", TEXT, "Why there is no interval; null: there is one."),
        column("seeds", INTEGER, "Seeds that both have.", unit="seeds"),
        column("questions", INTEGER, "Questions that both were asked, of each seed.", unit="questions"),
        column("discordant", INTEGER, "Pairs of answers that differ.", unit="pairs"),
    ]
)

#: The same of the right answers, under ``metadata.gold.differences``.
REPORT_GOLD: Final = pa.schema(
    [
        column(
            "measure", TEXT, "`bits_per_byte` of the right answer, or its `probability` among the choices."
        ),
        column("arm", TEXT, "The arm."),
        column("architecture", TEXT, "The models' architecture."),
        column("task", TEXT, "The benchmark, or `mean of tasks`."),
        column(
            "difference",
            NUMBER,
            "The measure less that of the baseline, over the same questions and seeds.",
            unit="bits per byte, lower is better; 0 to 1, higher is better",
        ),
        column(
            "half_width",
            NUMBER,
            "Half of the 95 % interval of the difference; null: one question or seed, or no spread.",
            unit="as `difference`",
            formula="Student's t of the paired differences; of a ratio, for bits per byte",
        ),
        column("interval", TEXT, "What the sample is: `seeds`, or `questions` where there is one seed."),
        column("seeds", INTEGER, "Seeds that both have.", unit="seeds"),
    ]
)

#: A trained probe.
PROBE: Final = pa.schema(
    [
        column(
            "task",
            TEXT,
            "What was fitted: `classification` of two labels, `regression` on a number; or `target`, one row an example.",
        ),
        column(
            "coefficients",
            pa.list_(NUMBER),
            "Weight of each dimension of the embedding; of a target its unit vector.",
        ),
        column("intercept", NUMBER, "What is added to the weighted sum."),
        column("low", NUMBER, "Lowest score: 0, or the lowest label; of a target -1."),
        column("high", NUMBER, "Highest score: 1, or the highest label."),
    ]
)


#: What one draw of an experiment measured.
EXPERIMENT: Final = pa.schema(
    [
        column("arm", TEXT, "The arm."),
        column(
            "task",
            TEXT,
            "The benchmark; `held_out_documents` for documents that no arm holds, `curated_documents` for curated ones.",
        ),
        column(
            "bits",
            NUMBER,
            "Negative log-likelihood of all its right answers, or documents, by the network if one was trained.",
            unit="bits",
        ),
        column("trigram_bits", NUMBER, "The same by the trigram model.", unit="bits"),
        column("bytes", INTEGER, "Their length.", unit="bytes of UTF-8"),
        column("documents", INTEGER, "Documents that the arm's model learnt from.", unit="documents"),
        column(
            "tokens", INTEGER, "Their length, the last one cut.", unit="tokens of the release's tokenizer"
        ),
        column("length_tenth", NUMBER, "A tenth of the documents are no longer.", unit="tokens"),
        column("length_median", NUMBER, "Half of the documents are no longer.", unit="tokens"),
        column("length_ninetieth", NUMBER, "Nine tenths of the documents are no longer.", unit="tokens"),
    ]
)


@dataclasses.dataclass(frozen=True)
class Table:
    """A kind of artefact with rows.

    Attributes:
        key: What one artefact is for.
        row: What one row is for.
        columns: Its columns; more may follow where `more` says so.
        more: What may follow after them.
    """

    key: str
    row: str
    columns: pa.Schema
    more: str = ""


#: Every table of the record by its stage: the first folder of its path.
TABLES: Final = {
    "ingest": Table("crawl", "document", DOCUMENTS, "columns that only the source has; `extra_json`"),
    "rejected": Table("crawl", "row of the source that is no document", REJECTED),
    "embed": Table("crawl", "document", EMBEDDINGS, "`score_<scorer>` of each scorer in `embed.heads`"),
    "score": Table("crawl", "document and scorer", SCORES),
    "decontaminate": Table(
        "release",
        "text of a question, or curated document, where `pool.decontaminate` is set",
        QUESTION_TEXTS,
    ),
    "takedown": Table(
        "release",
        "entry of `pool.takedown`, or host of `pool.robots`, where one is set; and text that one of them names outside the "
        "release",
        TAKEDOWN,
    ),
    "pool": Table("release", "document of the release's crawls", CANDIDATES),
    "copies": Table("release", "eligible document, where `copies.threshold` is set", NEAR_COPIES),
    "gather": Table(
        "release",
        "eligible document that is no near-copy",
        RELEASE_INDEX,
        "`num_near_copies` where near-copies were collapsed; `score_<scorer>` of each scorer",
    ),
    "select": Table("release/arm", "eligible document with every score of the arm", SELECTION),
    "learning_curve": Table(
        "release/arm", "step of the learner", LEARNING_CURVE, "what else the policy tells"
    ),
    "materialise": Table(
        "release/arm",
        "selected document",
        pa.schema([*DOCUMENTS, *SUBSET_EXTRA]),
        "`num_near_copies` where near-copies were collapsed; `score_<scorer>` of each scorer",
    ),
    "redundancy": Table("release/arm", "subset", REDUNDANCY),
    "ngram": Table("release/arm", "question, held-out and curated document", NGRAM),
    "pretrain": Table("release/run", "logged step of the optimiser", LOSS_CURVE),
    "evaluate": Table("release/run", "checkpoint, task and metric", RESULTS),
    "answers": Table("release/run", "checkpoint, and question, held-out or curated document", ANSWERS),
    "compare": Table("release", "checkpoint, task and metric of every run", RESULTS),
    "experiment": Table("experiment/pool/draw", "arm and task", EXPERIMENT),
    "probe": Table("labelled examples", "probe", PROBE),
}
