// Goal: the published Python client of MPP pays our paywall unmodified, although it hashes a challenge
// differently.
// Tier: full (needs other languages or their package registries).
import { execFile } from "node:child_process";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import t from "tap";
import { pythonWith } from "../helpers/python.ts";
import { PAID, shop } from "./shop.ts";

const run = promisify(execFile);
const PYMPP = "pympp[evm]==0.16.0";

t.test("pympp pays", async (t) => {
  const python = await pythonWith([PYMPP], (clean) => t.teardown(clean));
  if ("missing" in python) {
    t.pass("the published Python client", { skip: python.missing });
    return;
  }
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
