//! The keywords of Python are the fields of the questions.

use expect_test::expect_file;
use quarry_ask::stub;
use quarry_lab::ask::{
    Geometry, Hackbench, Look, Micro, Pages, Replay, Rx, Tbench, TcpRr, WhatIf, WillItScale,
};

/// `UPDATE_EXPECT=1 cargo test -p kquarry-lab --test keywords` writes the file.
#[test]
fn keywords_of_python_are_written() {
    let text = [
        "\"\"\"Keywords of questions, for type checkers and editors. Written by a test of kquarry-lab.\"\"\"\n\n\
         from __future__ import annotations\n\n\
         from collections.abc import Iterable, Mapping, Sequence\n\
         from typing import Literal, TypeAlias, TypedDict, TypeVar\n\n\
         T = TypeVar(\"T\")\n\
         Several: TypeAlias = T | Iterable[T]\n\
         Settings: TypeAlias = str | Iterable[str] | Mapping[str, int | str | Sequence[int | str]]\n"
            .to_string(),
        stub::<WhatIf>("WhatIf", "Keywords of Snapshot.what_if and of sweeps."),
        stub::<Replay>("Replay", "Keywords of Recording.replay and of sweeps."),
        stub::<Hackbench>("Hackbench", "Keywords of run for hackbench, and of sweeps."),
        stub::<Tbench>("Tbench", "Keywords of run for tbench, and of sweeps."),
        stub::<TcpRr>("TcpRr", "Keywords of run for tcp_rr, and of sweeps."),
        stub::<WillItScale>("WillItScale", "Keywords of run for will-it-scale, and of sweeps."),
        stub::<Micro>("Micro", "Keywords of run for micro, and of sweeps."),
        stub::<Pages>("Pages", "Keywords of run for pages, and of sweeps."),
        stub::<Rx>("Rx", "Keywords of run for rx, and of sweeps."),
        stub::<Look>("Look", "Keywords of look, and of sweeps."),
        stub::<Geometry>("Geometry", "Keywords of geometry, and of sweeps."),
    ];
    expect_file!["../../../python/quarry/_questions.py"].assert_eq(&text.join("\n\n"));
}
