import json, os, urllib.request, uuid

base = os.environ.get("PURSER_URL", "http://localhost:3000")
request = urllib.request.Request(
    f"{base}/api/agents/x402-fetch",
    data=json.dumps({"url": f"{base}/api/arc-stats", "maxAmount": "0.01"}).encode(),
    headers={
        "Authorization": f"Bearer {os.environ['AGENT_API_KEY']}",
        "Content-Type": "application/json",
        "Idempotency-Key": str(uuid.uuid4()),
    },
)
try:
    with urllib.request.urlopen(request) as response:
        answer = json.load(response)
    print("paid", answer["amountPaid"], "USDC:", answer["data"]["height"])
except urllib.error.HTTPError as error:
    problem = json.load(error)
    print(problem["code"], problem["detail"], problem.get("availableAt"))
