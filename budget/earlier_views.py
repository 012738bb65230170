"""Views as earlier versions wrote them: no forgeries, and opening a ledger for writing brings them up to date."""

from typing import Final

EARLIER_VIEWS: Final[dict[str, frozenset[str]]] = {
    "balance": frozenset({
        "0303fcf28c044fd59e83d87f3f0fa7ce7157052b51dc569c3534815aaf54f013",
        "96184f7cacdd002e070f1ad434dc4c0df2067446aa24fccffd0fc41340655305",
    }),
    "cost_per_account": frozenset({
        "3dac859b61ca1ccedf7a09a9142fe8532692d1a32058e2d29298f67d658dfb5a",
        "7fc8a7894114ada98522119afcecb95c9f2b953813a5153ffd2f0182e5063420",
    }),
    "cost_per_verdict": frozenset({
        "3d79881d6860f0d9d9ae0872510589676985e7e0e07adb19059427d665fc524d",
    }),
    "funnel": frozenset({
        "5ddd247e977a22b3897da096367ded1a5a4be05825da639c1ecadf30e4c04608",
        "d9400d4b700e5ef118f4feace06ee3932f51ce7bf3ebe5d236e5d9c701147fc7",
        "e289a58c598e604e26b678cef86fc18c5147894fc6555eb1521a401c24e518bc",
    }),
    "leaderboard": frozenset({
        "3088bfae91c6e9cb5770a24bd85c240c1a134e7d888c5e05831a6495fb700755",
        "5e8a7fe963dfae540bbd13197d8809fe116ad4e6710c2d9a993d256dce5b79f5",
    }),
    "quick_vs_precise": frozenset({
        "b282c0b4d5d1faa6abbb6d371c53d53d4e2ab04bcd98d483242c1ee6a4447382",
    }),
    "rank_agreement": frozenset({
        "edb0b35f2b3b00a9433ce88e2e2758900310581553dcc7b50883334c896e7570",
    }),
    "refusals": frozenset({
        "3d411fa3a5aeda15af53cf968853c7d26b260647da23b16ef1281a7d239c8c91",
    }),
    "spending": frozenset({
        "9de92f76772a8b8194680f9522dc1ec6462c501d83e4571c63dc8307801b0123",
        "53718cbca7ebd8b6739f4bb3abd61726a30a4145373998a637fb3a2877b98429",
    }),
    "wrongly_dropped": frozenset({
        "425d56f9f7e4f874c5f4a0da561e099385ac169e86800a598c65621ae549b6be",
    }),
}  # fmt: skip
"""View → SHA-256 of each text that it has had. Who changes a query adds the text that it had in a release."""
