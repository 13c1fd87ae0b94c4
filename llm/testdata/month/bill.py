#!/usr/bin/env python3
"""Makes up a month of calls of six providers, and reckons what they cost, as a spreadsheet would: one row for each call, and a formula
for each price. It shares nothing with the packages llm and price: amounts are fractions, and the rules are those of docs/models.md.

It writes prices.json, in the form of LiteLLM's list, calls.csv with the cost of each call, and bill.csv with the sums by team and model.
Run it in this directory; the same rows come out each time.
"""

import csv
import json
import random
from datetime import datetime, timedelta, timezone
from fractions import Fraction
from math import ceil

CALLS = 1500
START = datetime(2026, 2, 1, tzinfo=timezone.utc)
DAYS = 28
TEAMS = ["research", "search", "support"]

# Dollars for a token, as text, so that no float is in between.
PRICES = {
    "made-gpt": {  # chat and responses: services, long prompts, a region, searches, sound, pictures, caches of two lengths
        "input_cost_per_token": "1.25e-06", "output_cost_per_token": "1e-05", "cache_read_input_token_cost": "1.25e-07",
        "input_cost_per_token_above_200k_tokens": "2.5e-06", "output_cost_per_token_above_200k_tokens": "1.5e-05",
        "cache_read_input_token_cost_above_200k_tokens": "2.5e-07",
        "input_cost_per_token_flex": "6.25e-07", "output_cost_per_token_flex": "5e-06", "cache_read_input_token_cost_flex": "6.25e-08",
        "input_cost_per_token_priority": "2.5e-06", "output_cost_per_token_priority": "2e-05", "cache_read_input_token_cost_priority": "2.5e-07",
        "input_cost_per_audio_token": "4e-05", "output_cost_per_audio_token": "8e-05",
        "cache_creation_input_token_cost": "1.5e-06", "cache_creation_input_token_cost_above_12hr": "2.25e-06",
        "cache_creation_input_token_cost_above_12hr_above_200k_tokens": "4.5e-06", "cache_creation_input_token_cost_above_12hr_flex": "1.1e-06",
        "search_context_cost_per_query": {"search_context_size_low": "0.01", "search_context_size_medium": "0.01", "search_context_size_high": "0.01"},
        "regional_processing_uplift_multiplier_eu": "1.1",
    },
    "made-claude": {  # caches of two lengths, a region, a speed, searches
        "input_cost_per_token": "3e-06", "output_cost_per_token": "1.5e-05", "cache_read_input_token_cost": "3e-07",
        "cache_creation_input_token_cost": "3.75e-06", "cache_creation_input_token_cost_above_1hr": "6e-06",
        "input_cost_per_token_above_200k_tokens": "6e-06", "output_cost_per_token_above_200k_tokens": "2.25e-05",
        "cache_read_input_token_cost_above_200k_tokens": "6e-07", "cache_creation_input_token_cost_above_200k_tokens": "7.5e-06",
        "cache_creation_input_token_cost_above_1hr_above_200k_tokens": "1.2e-05",
        "search_context_cost_per_query": {"search_context_size_medium": "0.01"},
        "provider_specific_entry": {"us": "1.1", "fast": "6.0"},
    },
    "made-gemini": {  # sound and pictures, cached ones too, videos, thinking, long prompts
        "input_cost_per_token": "3e-07", "output_cost_per_token": "2.5e-06", "cache_read_input_token_cost": "3e-08",
        "input_cost_per_audio_token": "1e-06", "cache_read_input_audio_token_cost": "1e-07", "input_cost_per_image_token": "7e-07",
        "output_cost_per_image_token": "3e-05", "output_cost_per_reasoning_token": "3.5e-06", "cache_read_input_image_token_cost": "4e-08",
        "input_cost_per_video_token": "9e-07", "output_cost_per_video_token": "1.75e-05",
        "input_cost_per_token_above_128k_tokens": "6e-07", "output_cost_per_token_above_128k_tokens": "5e-06",
    },
    "made-nova": {  # of Bedrock: rates that are no whole nano-dollars, and caches
        "input_cost_per_token": "6.12345e-08", "output_cost_per_token": "2.412345e-07", "cache_read_input_token_cost": "1.5000001e-08",
        "cache_creation_input_token_cost": "7.5e-08", "input_cost_per_request": "0.00000033",
    },
    "made-deepseek": {  # hours of the day
        "input_cost_per_token": "2.7e-07", "output_cost_per_token": "1.1e-06", "cache_read_input_token_cost": "7e-08",
        "off_peak_pricing": {"hours_utc": "16:30-00:30", "input_cost_per_token": "1.35e-07", "output_cost_per_token": "5.5e-07",
                             "cache_read_input_token_cost": "3.5e-08"},
    },
    "made-mistral": {"input_cost_per_token": "4e-07", "output_cost_per_token": "2e-06"},
}

CLASSES = ["input", "cache_read", "cache_write", "cache_write_hour", "audio_input", "audio_cache_read", "image_input", "output", "reasoning",
           "audio_output", "image_output", "searches", "image_cache_read", "cache_write_12_hours", "video_input", "video_output"]


NAMES = {
    "input": "input_cost_per_token", "cache_read": "cache_read_input_token_cost", "cache_write": "cache_creation_input_token_cost",
    "cache_write_hour": "cache_creation_input_token_cost_above_1hr", "audio_input": "input_cost_per_audio_token",
    "audio_cache_read": "cache_read_input_audio_token_cost", "image_input": "input_cost_per_image_token", "output": "output_cost_per_token",
    "reasoning": "output_cost_per_reasoning_token", "audio_output": "output_cost_per_audio_token", "image_output": "output_cost_per_image_token",
    "image_cache_read": "cache_read_input_image_token_cost", "cache_write_12_hours": "cache_creation_input_token_cost_above_12hr",
    "video_input": "input_cost_per_video_token", "video_output": "output_cost_per_video_token",
}
WIDER = {"cache_read": "input", "cache_write": "input", "cache_write_hour": "cache_write", "audio_input": "input", "audio_cache_read": "cache_read",
         "image_input": "input", "reasoning": "output", "audio_output": "output", "image_output": "output",
         "image_cache_read": "cache_read", "cache_write_12_hours": "cache_write_hour", "video_input": "input", "video_output": "output"}


def column(prices, suffix=""):
    """The rates that a list has under names with a suffix, by class."""
    return {cls: Fraction(prices[name + suffix]) for cls, name in NAMES.items() if name + suffix in prices}


def of(rates, cls):
    """The rate of a class, or of the next wider one that has any."""
    while cls not in rates:
        cls = WIDER[cls]
    return rates[cls]


def rate(model, cls, service, hours, long):
    """The dollars of one unit of a class."""
    p = PRICES[model]
    if cls == "searches":
        return Fraction(p.get("search_context_cost_per_query", {}).get("search_context_size_medium", "0"))
    usual = column(p)
    raised = {**usual, **column(p, long)} if long else usual
    special = column(p, "_" + service) if service else {}
    if hours and not special:
        special = column(p["off_peak_pricing"])
    if not special:
        return of(raised, cls)
    # A class without a rate of its own is cheaper or dearer by as much as the wider class is, and long prompts by as much as usual ones.
    for c in NAMES:
        if c not in special and c in usual and c in WIDER:
            special[c] = usual[c] * of(special, c) / of(usual, WIDER[c])
    return of(special, cls) * of(raised, cls) / of(usual, cls)


def cost(c):
    """The price of a call in dollars, exactly."""
    p, model = PRICES[c["model"]], c["model"]
    prompt = sum(c[k] for k in ("input", "cache_read", "cache_write", "cache_write_hour", "audio_input", "audio_cache_read", "image_input",
                                   "image_cache_read", "cache_write_12_hours", "video_input"))
    long = ""
    for above, name in ((200_000, "_above_200k_tokens"), (128_000, "_above_128k_tokens")):
        if prompt > above and "input_cost_per_token" + name in p:
            long = name
    minute = c["time"].hour * 60 + c["time"].minute
    hours = "off_peak_pricing" in p and (minute >= 16 * 60 + 30 or minute < 30)
    factor = Fraction(1)
    if c["region"]:
        factor *= Fraction(p.get("regional_processing_uplift_multiplier_" + c["region"]) or p.get("provider_specific_entry", {}).get(c["region"], "1"))
    if c["speed"]:
        factor *= Fraction(p.get("provider_specific_entry", {}).get(c["speed"], "1"))
    total = Fraction(p.get("input_cost_per_request", "0"))
    for cls in CLASSES:
        part = c[cls] * rate(model, cls, c["service"], hours, long)
        total += part if cls == "searches" else part * factor
    return total


def tokens(r, greatest):
    return int(greatest ** r.random())


def call(r, at):
    """A row: who asks which model, and what it takes, by class."""
    provider = r.choice(["openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "deepseek", "mistral"])
    c = dict.fromkeys(CLASSES, 0)
    c.update(time=at, team=r.choice(TEAMS), provider=provider, stream=r.random() < 0.5, service="", region="", speed="")
    c["model"] = {"openai-chat": "made-gpt", "openai-responses": "made-gpt", "anthropic": "made-claude", "gemini": "made-gemini",
                  "bedrock": "made-nova", "deepseek": "made-deepseek", "mistral": "made-mistral"}[provider]
    c["input"], c["output"] = tokens(r, 300_000), tokens(r, 20_000)
    often = lambda share: r.random() < share
    if provider != "mistral" and often(0.5):
        c["cache_read"] = tokens(r, 200_000)
    if provider.startswith("openai"):
        c["service"] = r.choice(["", "", "flex", "priority"])
        c["region"] = "eu" if often(0.2) else ""
        c["reasoning"] = tokens(r, 5_000) if often(0.4) else 0
    if provider == "openai-chat" and often(0.2):
        c["audio_input"], c["audio_output"] = tokens(r, 5_000), tokens(r, 5_000)
    if provider == "openai-responses" and often(0.3):
        c["searches"] = r.randint(1, 5)
    if provider == "openai-responses" and often(0.4):
        c["cache_write"], c["cache_write_12_hours"] = tokens(r, 50_000), tokens(r, 100_000)
    if provider == "anthropic":
        c["cache_write"] = tokens(r, 100_000) if often(0.5) else 0
        c["cache_write_hour"] = tokens(r, 50_000) if often(0.3) else 0
        c["searches"] = r.randint(1, 5) if often(0.2) else 0
        c["region"] = "us" if often(0.3) else ""
        c["speed"] = "fast" if often(0.2) else ""
        c["reasoning"] = tokens(r, 5_000) if often(0.3) else 0
    if provider == "gemini":
        c["reasoning"] = tokens(r, 10_000) if often(0.5) else 0
        if often(0.3):
            c["audio_input"], c["image_input"] = tokens(r, 50_000), tokens(r, 5_000)
        c["audio_cache_read"] = tokens(r, 20_000) if often(0.2) else 0
        c["image_output"] = tokens(r, 3_000) if often(0.2) else 0
        c["image_cache_read"] = tokens(r, 5_000) if often(0.2) else 0
        c["video_input"] = tokens(r, 50_000) if often(0.2) else 0
        c["video_output"] = tokens(r, 5_000) if often(0.1) else 0
    if provider == "bedrock":
        c["cache_write"] = tokens(r, 100_000) if often(0.3) else 0
    if provider == "deepseek":
        c["reasoning"] = tokens(r, 5_000) if often(0.4) else 0
    return c


def main():
    r = random.Random(43)
    times = sorted(START + timedelta(seconds=r.randrange(DAYS * 86_400)) for _ in range(CALLS))
    bill = {}
    with open("calls.csv", "w", newline="") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(["time", "team", "provider", "model", "stream", "service", "region", "speed", *CLASSES, "nano_dollars"])
        for at in times:
            c = call(r, at)
            nanos = ceil(cost(c) * 10**9)  # each call is rounded up once
            rows.writerow([at.isoformat().replace("+00:00", "Z"), c["team"], c["provider"], c["model"], str(c["stream"]).lower(), c["service"], c["region"],
                           c["speed"], *(c[k] for k in CLASSES), nanos])
            for key in ((c["team"], c["model"]), (c["team"], "all"), ("all", c["model"]), ("all", "all")):
                n, spent = bill.get(key, (0, 0))
                bill[key] = n + 1, spent + nanos
    with open("bill.csv", "w", newline="") as f:
        rows = csv.writer(f, lineterminator="\n")
        rows.writerow(["team", "model", "calls", "dollars"])
        for (team, model), (n, spent) in sorted(bill.items()):
            rows.writerow([team, model, n, f"{spent // 10**9}.{spent % 10**9:09d}"])

    def number(value):  # as a number of JSON with the digits of the text
        return {k: number(v) for k, v in value.items()} if isinstance(value, dict) else "#" + value if value[0].isdigit() and "-00:" not in value else value

    text = json.dumps({model: number(p) for model, p in PRICES.items()}, indent=1)
    with open("prices.json", "w") as f:
        f.write(__import__("re").sub(r'"#([^"]*)"', r"\1", text) + "\n")


if __name__ == "__main__":
    main()
