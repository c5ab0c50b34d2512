"""The data and settings of the tiny chain: two crawls of made-up prose, two arms, real parts throughout."""

import json
import random
from pathlib import Path

import yaml

TOPICS = {
    "river": "water bridge valley salmon current delta flood canal ferry reeds",
    "bread": "flour yeast butter crust dough baker kitchen wheat honey pastry",
    "engine": "piston valve torque cylinder exhaust gearbox workshop spark bearing throttle",
    "music": "violin melody rhythm concert chorus guitar harmony studio tempo singer",
    "planet": "orbit comet telescope gravity crater galaxy satellite eclipse meteor horizon",
    "garden": "compost shovel blossom hedge orchard seedling trellis beetle pruner lavender",
    "harbour": "anchor lighthouse trawler compass seagull barrel captain warehouse lantern voyage",
    "theatre": "curtain actor stage script costume audience rehearsal spotlight drama ticket",
    "weather": "thunder blizzard barometer drizzle forecast humidity sunrise tornado breeze rainbow",
    "library": "catalogue shelf author chapter archive bookmark printer journal scholar paper",
}
#: Benchmarks of every kind: with passages and without, asked by what follows or what fits, with one answer and several.
TASKS = ("race_high", "nq_open", "mmlu", "piqa", "winogrande")
SENTENCES = (
    "The {a} near the {b} had changed more in one summer than in the ten years before.",
    "Nobody could explain why every {a} needs a {b} before the first {c} can be used.",
    "In the old report, the {a} was described as larger than any {b} of the region.",
    "We measured the {a} twice, wrote the numbers down, and compared them with the {b}.",
    "Most people learn about the {a} early, but they forget how the {b} and the {c} belong together.",
    "After the meeting she bought a {a}, repaired the {b}, and left the {c} on the table.",
    "It is easy to see that a {a} without its {b} would soon stop working altogether.",
    "Their teacher said that the {c} explains the {a} better than the {b} ever could.",
)


def write_crawl(folder: Path, crawl: str, num_documents: int, *, seed: int) -> None:
    """Two JSON Lines shards in FineWeb's schema; every tenth text is one of the crawl's earlier texts."""
    generator = random.Random(seed)
    texts: list[str] = []
    for index in range(num_documents):
        topic = generator.choice(sorted(TOPICS))
        words = TOPICS[topic].split()
        sentences = []
        for sentence in generator.sample(SENTENCES, generator.randint(4, 7)):
            a, b, c = generator.sample(words, 3)
            sentences.append(sentence.format(a=a, b=b, c=c))
        text = f"Notes on the {topic}. " + " ".join(sentences)
        texts.append(generator.choice(texts) if index % 10 == 9 else text)
    (folder / crawl).mkdir(parents=True)
    for shard in (0, 1):
        rows = [_row(crawl, index, texts[index]) for index in range(shard, num_documents, 2)]
        if shard == 1:
            rows.append(_row(crawl, num_documents, "   "))
        lines = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / crawl / f"{shard:03d}.jsonl").write_text(lines, encoding="utf-8")


def _row(crawl: str, index: int, text: str) -> dict[str, object]:
    return {
        "text": text,
        "id": f"<urn:uuid:{crawl}-{index:05d}>",
        "dump": crawl,
        "url": f"https://site{index % 7}.example/{crawl}/{index}",
        "date": "2024-01-01T00:00:00Z",
        "file_path": f"{crawl}.warc",
        "language": "en",
        "language_score": 0.9,
        "token_count": len(text.split()),
    }


def write_tiny_config(folder: Path) -> Path:
    """Crawls and a configuration of small numbers; returns the YAML file."""
    write_crawl(folder / "crawls", "tiny-2024-10", 70, seed=1)
    write_crawl(folder / "crawls", "tiny-2024-18", 60, seed=2)
    values = {
        "name": "tiny",
        "store": str(folder / "record"),
        "source": {"name": "local", "options": {"root": str(folder / "crawls")}},
        "embed": {"dtype": "float32", "max_tokens": 16},
        "score": {"scorers": ["rules"]},
        "releases": {"first": {}},
        "pool": {"validation_share": 0.3},
        "select": {"ratio": 0.3},
        "arms": {
            "random": {"policy": "random"},
            "datamask": {"policy": "datamask", "num_restarts": 1, "num_kicks": 1},
        },
        "tokenizer": {"vocab_size": 400, "sequence_length": 64},
        "pretrain": {
            "hidden_size": 16,
            "num_layers": 1,
            "num_heads": 2,
            "intermediate_size": 32,
            "sequence_length": 64,
            "batch_size": 4,
            "token_budget": 2_560,
            "threads": 1,
        },
        "evaluate": {"tasks": list(TASKS), "questions_per_task": 3, "max_length": 64},
    }
    path = folder / "tiny.yaml"
    path.write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return path
