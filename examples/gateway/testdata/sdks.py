"""Calls a gateway by the SDKs of OpenAI, Anthropic and Google. Each line that it reads is a call, as JSON: the SDK, the key, and whether the
answer comes whole, as a stream, or as a stream that is left after its first piece. A line that it prints is what became of the call.

Usage: sdks.py URL"""

import contextlib
import json
import sys

import anthropic
import openai
from google import genai
from google.genai import errors, types

url = sys.argv[1]
question = [{"role": "user", "content": "Why is the sky blue?"}]


def ask_openai(key, how):
    client = openai.OpenAI(base_url=url + "/openai/v1/", api_key=key, max_retries=0)
    params = {"model": "gpt-4o-mini", "max_tokens": 1000, "messages": question}
    if how == "whole":
        yield client.chat.completions.create(**params).choices[0].message.content
        return
    with client.chat.completions.create(stream=True, **params) as stream:
        for chunk in stream:
            for choice in chunk.choices:
                yield choice.delta.content


def ask_anthropic(key, how):
    client = anthropic.Anthropic(base_url=url + "/anthropic", api_key=key, max_retries=0)
    params = {"model": "claude-opus-4-5", "max_tokens": 1000, "messages": question}
    if how == "whole":
        yield client.messages.create(**params).content[0].text
        return
    with client.messages.stream(**params) as stream:
        yield from stream.text_stream


def ask_gemini(key, how):
    client = genai.Client(api_key=key, http_options=types.HttpOptions(base_url=url + "/gemini"))
    params = {
        "model": "gemini-2.5-flash",
        "contents": question[0]["content"],
        "config": types.GenerateContentConfig(max_output_tokens=1000),
    }
    if how == "whole":
        yield client.models.generate_content(**params).text
        return
    for chunk in client.models.generate_content_stream(**params):
        yield chunk.text


for line in sys.stdin:
    call, text, status = json.loads(line), "", 200
    ask = {"openai": ask_openai, "anthropic": ask_anthropic, "gemini": ask_gemini}[call["sdk"]]
    try:
        with contextlib.closing(ask(call["key"], call["how"])) as pieces:
            for piece in pieces:
                text += piece
                if call["how"] == "left":
                    break
    except (openai.APIStatusError, anthropic.APIStatusError) as e:
        status = e.status_code
    except errors.APIError as e:
        status = e.code
    print(json.dumps({"text": text, "status": status}), flush=True)
