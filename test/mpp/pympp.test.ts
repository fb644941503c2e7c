// Goal: the published Python client of MPP pays our paywall unmodified, although it hashes a challenge
// differently; and our wallet pays its server, which requires payments bound to its route.
// Tier: full (needs other languages or their package registries).
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { pythonWith } from "../helpers/python.ts";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market, PAYEE } from "../x402-client/market.ts";
import { PAID, shop } from "./shop.ts";

const run = promisify(execFile);
const PYMPP = "pympp[evm]==0.16.0";

const SELLER = `
import asyncio, os
from http.server import BaseHTTPRequestHandler, HTTPServer
from mpp.methods.evm import server as evm
from mpp.server import Mpp, Request, Response

server = Mpp(methods=evm.charge(
    currency=os.environ["USDC"], chain_id=int(os.environ["CHAIN_ID"]), decimals=6,
    authorization={"name": "USDC", "version": "2"},
    recipient=os.environ["PAY_TO"], facilitator=os.environ["FACILITATOR"],
))
origin = "http://127.0.0.1:" + os.environ["PORT"]

async def sell(request):
    result = await server.charge(amount="0.001")(request)
    if result.status != 200:
        return result.challenge
    return result.with_receipt(Response.json({"sold": "pympp"}))

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        answer = asyncio.run(sell(Request("GET", origin + self.path, dict(self.headers))))
        self.send_response(answer.status)
        for name, value in answer.headers.multi_items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(answer.body or b"")))
        self.end_headers()
        self.wfile.write(answer.body or b"")
    def log_message(self, *_):
        pass

HTTPServer(("127.0.0.1", int(os.environ["PORT"])), Handler).serve_forever()
`;

const PROGRAM = `
import asyncio, base64, json, os
from eth_account import Account
from mpp.client import Mpp
from mpp.methods.evm import client as evm

async def main():
    method = evm.charge(
        currency=os.environ["USDC"], account=Account.from_key(os.environ["KEY"]),
        chain_id=int(os.environ["CHAIN_ID"]), decimals=6,
        authorization={"name": "USDC", "version": "2"},
    )
    async with Mpp(methods=[method]) as client:
        answer = await client.fetch(os.environ["URL"])
    receipt = answer.headers.get("payment-receipt", "")
    padded = receipt + "=" * (-len(receipt) % 4)
    print(json.dumps({
        "status": answer.status_code,
        "receipt": json.loads(base64.urlsafe_b64decode(padded)) if receipt else answer.text,
    }))

asyncio.run(main())
`;

// Before the first test: tap ends the file when something is awaited between two tests.
const python = await pythonWith([PYMPP], (clean) => t.teardown(clean));
const skip = "missing" in python && python.missing;

t.test("pympp pays", { skip }, async (t) => {
  if ("missing" in python) return;
  const program = join(python.bin, "pay.py");
  await writeFile(program, PROGRAM);
  const made = await shop(t);
  const { baseUrl, payer } = made;
  const before = await made.held();
  const { stdout } = await run(python.python, [program], {
    env: {
      URL: `${baseUrl}${PAID}`,
      KEY: payer.privateKey,
      USDC: made.chain.usdc,
      CHAIN_ID: String(made.chain.chainId),
    },
  });
  t.match(JSON.parse(stdout), { status: 200, receipt: { method: "evm", status: "success" } });
  t.equal(before - (await made.held()), 1000n);
});

t.test("pympp sells, with its own defaults", { skip }, async (t) => {
  if ("missing" in python) return;
  const made = await market(t, { listen: true, env: { SETTLE_WAIT_MS: "10000" } });
  const { chain } = made;
  const program = join(python.bin, "sell.py");
  await writeFile(program, SELLER);
  const port = await freePort();
  const origin = `http://127.0.0.1:${port}`;
  const shop = spawn(python.python, [program], {
    stdio: ["ignore", "inherit", "inherit"],
    env: {
      PORT: String(port),
      PAY_TO: PAYEE,
      USDC: chain.usdc,
      CHAIN_ID: String(chain.chainId),
      FACILITATOR: `${made.baseUrl}/api/x402`,
      MPP_REALM: "127.0.0.1",
      MPP_SECRET_KEY: "s".repeat(32),
    },
  });
  const ended = once(shop, "exit");
  t.teardown(async () => {
    shop.kill();
    await ended;
  });
  const url = `${origin}/paid?city=Lima`;
  await until(() =>
    fetch(url).then(
      ({ status }) => status === 402,
      () => false,
    ),
  );
  made.config.fetchPrivateOrigins.push(origin);
  for (let nth = 1; nth <= 2; nth += 1) {
    const answer = await made.fetch({ url });
    t.match(
      answer,
      { status: 200, body: { paid: true, amountPaid: "0.001", data: { sold: "pympp" } } },
      answer.text,
    );
    t.equal(await made.balanceOf(PAYEE), BigInt(nth) * 1000n);
  }
  await assertLedgerIsChain(t, made);
});
