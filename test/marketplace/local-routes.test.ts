// Goal: local mode has a faucet and a demo wallet; they do not exist in any other mode.
import t from "tap";
import { privateKeyToAddress } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { reaching } from "./seller.ts";

t.test("they do not exist in production", async (t) => {
  const { app } = await testApp(t);
  for (const [method, url] of [
    ["POST", "/api/local/faucet"],
    ["GET", "/api/local/info"],
    ["GET", "/api/local/faucet"],
  ] as const) {
    const answer = await app.inject({ method, url, ...(method === "POST" && { payload: {} }) });
    t.equal(answer.statusCode, 404, url);
    t.equal(answer.json<{ code: string }>().code, "not_found");
  }
  t.notMatch((await app.inject("/openapi.json")).body, "/api/local");
});

t.test("in local mode, the faucet mints", async (t) => {
  const { app, chain } = await testApp(t, reaching());
  const to = testAccount(77).address;
  const requestFaucet = async (payload: object) => {
    const answer = await app.inject({ method: "POST", url: "/api/local/faucet", payload });
    return {
      status: answer.statusCode,
      body: answer.json<{ txHash: `0x${string}`; code: string }>(),
    };
  };
  const balance = () => chain.usdcOf(to);
  const usual = await requestFaucet({ address: to });
  t.match(usual, { status: 200, body: { success: true, address: to, amount: "100" } });
  t.equal(await balance(), 100_000_000n);
  const receipt = await chain.publicClient.getTransactionReceipt({ hash: usual.body.txHash });
  t.equal(receipt.status, "success");
  const many = await Promise.all(
    Array.from({ length: 5 }, () => requestFaucet({ address: to, amount: "0.5" })),
  );
  t.same(
    many.map(({ status }) => status),
    [200, 200, 200, 200, 200],
  );
  t.equal(new Set(many.map(({ body }) => body.txHash)).size, 5);
  t.equal(await balance(), 102_500_000n);
  for (const amount of ["10001", "0", "-1", "1e3", "0.0000001", ""])
    t.match(await requestFaucet({ address: to, amount }), {
      status: 422,
      body: { code: "invalid_amount" },
    });
  for (const address of ["0x1", "me", to.replace("0x", "0X")])
    t.match(await requestFaucet({ address }), { status: 422, body: { code: "invalid_address" } });
  t.match(await requestFaucet({ address: to, more: 1 }), { status: 422 });

  const info = await app.inject({
    url: "/api/local/info",
    headers: { origin: "https://a.example" },
  });
  t.equal(info.headers["access-control-allow-origin"], undefined);
  const { demoOwnerAddress, demoOwnerPrivateKey } = info.json<{
    demoOwnerAddress: string;
    demoOwnerPrivateKey: `0x${string}`;
  }>();
  t.equal(privateKeyToAddress(demoOwnerPrivateKey), demoOwnerAddress);
  t.equal(info.headers["cache-control"], "no-store");

  await chain.stop();
  t.match(await requestFaucet({ address: to }), {
    status: 503,
    body: { code: "chain_unavailable" },
  });
});
