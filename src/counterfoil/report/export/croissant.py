"""Croissant metadata (ML Commons, version 1.0) for a set in folders."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from counterfoil.report.export.about import About
from counterfoil.report.export.pictures import COLUMNS
from counterfoil.report.export.reading import TABLE
from counterfoil.store.files import sha256_of

NAME = "croissant.json"
_CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "citeAs": "cr:citeAs",
    "column": "cr:column",
    "conformsTo": "dct:conformsTo",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "data": {"@id": "cr:data", "@type": "@json"},
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "dct": "http://purl.org/dc/terms/",
    "equivalentProperty": "cr:equivalentProperty",
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "extract": "cr:extract",
    "field": "cr:field",
    "fileProperty": "cr:fileProperty",
    "fileObject": "cr:fileObject",
    "fileSet": "cr:fileSet",
    "format": "cr:format",
    "includes": "cr:includes",
    "isLiveDataset": "cr:isLiveDataset",
    "jsonPath": "cr:jsonPath",
    "key": "cr:key",
    "md5": "cr:md5",
    "parentField": "cr:parentField",
    "path": "cr:path",
    "recordSet": "cr:recordSet",
    "references": "cr:references",
    "regex": "cr:regex",
    "repeated": "cr:repeated",
    "replace": "cr:replace",
    "samplingRate": "cr:samplingRate",
    "sc": "https://schema.org/",
    "separator": "cr:separator",
    "source": "cr:source",
    "subField": "cr:subField",
    "transform": "cr:transform",
}
_WHAT = {
    "file_name": "where the picture is, below the set",
    "label": "number of its class",
    "class": "name of its class",
    "kind": "kind of nuisance, or what was changed",
    "nuisance": "the nuisance itself, or what it was changed to",
    "prompt": "the words it was made from",
    "caption": "the words for the picture it was made of",
    "seed": "seed of its noise",
    "trial": "its id in the run",
    "source": "the picture it was made of",
    "sha256": "hash of the file",
    "oracle": "whether the oracle sees the class: yes, no, or empty",
    "people": "whether people accept it: yes, no, or empty",
}


def write_croissant(folder: Path, about: About) -> None:
    """Write the metadata beside the files it describes."""
    content = json.dumps(croissant(about, table_sha256=sha256_of(folder / TABLE)), indent=2, ensure_ascii=False)
    (folder / NAME).write_text(content + "\n", encoding="utf-8")


def croissant(about: About, *, table_sha256: str) -> dict[str, Any]:
    """The metadata as JSON-LD."""
    made = f"Made by {about.program} ({about.protocol}; {', '.join(f'{role} {name}' for role, name in about.parts.items())}), "
    return {
        "@context": _CONTEXT,
        "@type": "sc:Dataset",
        "conformsTo": "http://mlcommons.org/croissant/1.0",
        "name": _name(about.name),
        "description": f"{about.description}. {made}seed {about.seed}.",
        "license": about.licence,
        "version": "1.0.0",
        "isLiveDataset": False,
        "rai:dataCollection": made + (f"chosen by the mistakes of {', '.join(about.surrogates)}" if about.surrogates else ""),
        "distribution": [
            {
                "@type": "cr:FileObject",
                "@id": "table",
                "name": "table",
                "description": "one row a picture",
                "contentUrl": TABLE,
                "encodingFormat": "text/csv",
                "sha256": table_sha256,
            },
            {
                "@type": "cr:FileSet",
                "@id": "pictures",
                "name": "pictures",
                "description": "one folder a class",
                "encodingFormat": "image/png",
                "includes": "*/*.png",
            },
        ],
        "recordSet": [
            {
                "@type": "cr:RecordSet",
                "@id": "rows",
                "name": "rows",
                "description": "what is said of every picture",
                "key": {"@id": "rows/file_name"},
                "field": [_field(column) for column in COLUMNS],
            }
        ],
    }


def _field(column: str) -> dict[str, Any]:
    return {
        "@type": "cr:Field",
        "@id": f"rows/{column}",
        "name": column,
        "description": _WHAT[column],
        "dataType": "sc:Integer" if column in ("label", "seed") else "sc:Text",
        "source": {"fileObject": {"@id": "table"}, "extract": {"column": column}},
    }


def _name(text: str) -> str:
    """A name as Croissant takes it."""
    return "".join(letter if letter.isalnum() or letter in "-_ ." else "-" for letter in text) or "set"
