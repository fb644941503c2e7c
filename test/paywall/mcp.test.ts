// Goal: a tool of an MCP server is sold once per payment, settled before it runs, with either official SDK.
import { Client as OldClient } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport as OldTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import type { PaymentPayload, PaymentRequired, SettleResponse } from "@x402/core/types";
import t, { type Test } from "tap";
import { cashier, PAYMENT_META, paidTool } from "../../packages/paywall/src/mcp.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { stockClient } from "./stock.ts";
import { newToolServer, oldToolServer, type ToolServer } from "./tool-servers.ts";

const { chain, baseUrl } = await testApp(t, { listen: true });
const payer = testAccount(2);
const payTo = testAccount(5).address;
await chain.mint(payer.address, 10_000_000n);
const charges = cashier({
  facilitator: `${baseUrl}/api/x402`,
  networks: [`eip155:${chain.chainId}`],
  payTo,
});
const stock = stockClient(chain, payer);

interface Called {
  isError?: boolean;
  content: { type: string; text: string }[];
  structuredContent?: Record<string, unknown>;
  _meta?: Record<string, unknown>;
}
type Call = (name: string, args: object, payment?: unknown) => Promise<Called>;

async function connected(t: Test, url: string, isOld: boolean): Promise<Call> {
  const client = isOld
    ? new OldClient({ name: "old", version: "1" })
    : new Client({ name: "new", version: "1" }, { versionNegotiation: { mode: "auto" } });
  const transport = isOld
    ? new OldTransport(new URL(url))
    : new StreamableHTTPClientTransport(new URL(url));
  await client.connect(transport);
  t.teardown(() => client.close());
  return async (name, args, payment) => {
    const _meta = payment === undefined ? {} : { [PAYMENT_META]: payment };
    return (await client.callTool({ name, arguments: { ...args }, _meta })) as unknown as Called;
  };
}

const receiptOf = ({ _meta }: Called): SettleResponse =>
  _meta?.["x402/payment-response"] as SettleResponse;
const pays = ({ structuredContent }: Called): Promise<PaymentPayload> =>
  stock.createPaymentPayload(structuredContent as unknown as PaymentRequired);
const shops: [string, boolean, () => Promise<ToolServer>][] = [
  ["the SDK with sessions and streams", true, () => oldToolServer(t, charges)],
  ["the SDK without sessions", false, () => newToolServer(t, charges)],
];

for (const [name, isOld, open] of shops)
  t.test(name, async (t) => {
    const shop = await open();
    const call = await connected(t, shop.url, isOld);
    const weather = { city: "Wien" };

    const unpaid = await call("get_weather", weather);
    t.match(unpaid, {
      isError: true,
      structuredContent: {
        x402Version: 2,
        error: "Payment required",
        resource: { url: "mcp://tool/get_weather", description: "Weather of a city" },
        accepts: [{ amount: "10000", payTo, network: `eip155:${chain.chainId}` }],
      },
    });
    t.same(JSON.parse(unpaid.content[0]?.text ?? ""), unpaid.structuredContent, "the same as text");
    t.same(shop.runs, [], "nothing ran");

    const proof = await pays(unpaid);
    const answers = await Promise.all(
      Array.from({ length: 10 }, () => call("get_weather", weather, proof)),
    );
    const served = answers.filter(({ isError }) => isError !== true);
    t.equal(served.length, 1, "one payment, one result");
    t.match(served[0], { structuredContent: { city: "Wien", degrees: 21 } });
    const receipt = receiptOf(served[0] as Called);
    t.match(receipt, { success: true, payer: payer.address });
    const hash = receipt.transaction as `0x${string}`;
    t.equal((await chain.publicClient.getTransactionReceipt({ hash })).status, "success");
    for (const refused of answers.filter(({ isError }) => isError === true)) {
      t.match(receiptOf(refused), { success: false, errorReason: String });
      t.match(refused.structuredContent, { error: /^Payment settlement failed: /, accepts: Array });
    }
    t.match(shop.runs, [{ city: "Wien", receipt: { transaction: hash, payer: payer.address } }]);

    const dear = await call("broken", {}, await pays(await call("get_weather", weather)));
    t.match(dear.structuredContent, { error: "No matching payment requirements" });
    const broken = await call("broken", {}, await pays(await call("broken", {})));
    t.match(broken, { isError: true, content: [{ text: "out of order" }] });
    t.match(receiptOf(broken), { success: true }, "a failed call that was paid has a receipt");

    const before = await pays(await call("unprepared", {}));
    t.match(await call("unprepared", {}, before), {
      isError: true,
      content: [{ text: /no data/ }],
    });
    t.notOk((await call("get_weather", weather, before)).isError, "its proof is still unused");

    for (const malformed of [{}, "text", 7, { x402Version: 2 }, { ...proof, payload: { a: 1 } }])
      t.match(await call("get_weather", weather, malformed), {
        isError: true,
        structuredContent: { accepts: Array },
      });
    t.same(
      shop.runs.map(({ tool }) => tool),
      ["get_weather", "broken", "get_weather"],
    );
    t.match(
      await call("ping", {}),
      { content: [{ text: "pong" }] },
      "a tool without a price is free",
    );
  });

t.test("the receipt of a delivered result is the signed one", async (t) => {
  const settled = (transaction: string) => ({
    response: { success: true, transaction, network: "eip155:1" as const },
    headers: {
      "payment-response": Buffer.from(JSON.stringify({ success: true, transaction })).toString(
        "base64",
      ),
    },
  });
  const receipt = { payer: undefined, transaction: "0x1", network: "eip155:1", amount: "1" };
  const delivered = async () => settled("signed");
  const charge = async () => ({
    kind: "settled" as const,
    ...settled("plain"),
    receipt,
    delivered,
  });
  const counter = { charge, required: charges.required.bind(charges) };
  const called = (isError: boolean) =>
    paidTool(counter, { name: "x", price: "1" }, () => ({ content: [], isError }))();
  const receiptAfter = async (isError: boolean) => receiptOf(await called(isError)).transaction;
  t.equal(await receiptAfter(false), "signed");
  t.equal(await receiptAfter(true), "plain", "a failed call delivered nothing");
});

t.test("without its facilitator a tool is not given away", async (t) => {
  const away = cashier({ facilitator: "http://127.0.0.1:9", networks: ["base"], payTo });
  let runs = 0;
  const tool = paidTool(away, { name: "x", price: "1" }, () => ({ ran: (runs += 1) }));
  await t.rejects(tool(), { message: "The facilitator's supported payments cannot be read." });
  t.equal(runs, 0);
  t.throws(
    () => cashier({ facilitator: "http://x", networks: ["nowhere"], payTo }),
    /does not know the network/,
  );
});
