"""Calls a model within the limits of acme, as often as they allow."""
import sys
from zlimit import Problem, limited

def model(question):
    return {"text": question.upper(), "usage": {"total_tokens": 431}}

for question in sys.argv[1:]:
    try:
        with limited("acme", "gpt-5", rpm=1, tpm=1200) as lease:
            if question == "fail":
                raise ValueError("the model fails")
            answer = model(question)
            lease["actual"] = {"tpm": answer["usage"]["total_tokens"]}
        print(answer["text"])
    except ValueError as e:
        print(e)
    except Problem as p:
        print(p.code, [limit["policy"] for limit in p.body["limits"] if limit["exceeded"]], p.retry_after is not None)
