// Goal: the command line passes content on as it is, and works with services that know no `detail` of listings.
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import t from "tap";
import { main } from "../../packages/purser/src/cli.ts";

const asked: string[] = [];
let answer = "";
const service = createServer((request, response) => {
  asked.push(request.url ?? "");
  request.resume();
  response.writeHead(200, { "content-type": "application/json" }).end(answer);
}).listen(0, "127.0.0.1");
await once(service, "listening");
t.teardown(() => service.close());
const env = {
  PURSER_URL: `http://127.0.0.1:${(service.address() as AddressInfo).port}`,
  AGENT_API_KEY: "purser_test",
};

async function run(...args: string[]): Promise<string> {
  let out = "";
  const write = (content: string | Uint8Array): void => void (out += String(content));
  const output = { isTerminal: false, write, note: () => undefined };
  t.equal(await main(args, env, write, output), 0);
  return out;
}

const fetched = (data: string, status = 200): string =>
  `{"success":true,"data" : ${data},"paid":false,"delivered":true,"status":${status}}`;

t.test("--raw keeps the text of the data", async (t) => {
  for (const data of [
    '{"id":12345678901234567890,"price":0.1000,"big":1e400}',
    '[{"a":"}\\\\"},"\\",{\\"data\\":1",[]]',
    "0.10",
    '"text"',
    "null",
  ]) {
    answer = fetched(data);
    t.equal(await run("fetch", "https://shop.example/", "--raw"), `${data}\n`);
  }
  answer = fetched("null", 204);
  t.equal(await run("fetch", "https://shop.example/", "--raw"), "", "there is no content");
});

t.test("listings are shortened here", async (t) => {
  const [id, url, method, network, price, uses] = [
    "a",
    "https://a.example",
    "GET",
    "eip155:1",
    "1",
    0,
  ];
  const maximum = true;
  const short = { id, url, method, network, price, maximum, uses };
  const texts = { untrusted: true, name: "A", description: "B", category: "c" };
  const full = { ...short, payTo: "0x", thirdParty: { ...texts, sample: "{}" } };
  answer = JSON.stringify({ items: [full], nextCursor: null });
  t.same(JSON.parse(await run("listings", "--search", "a")), {
    items: [{ ...short, thirdParty: texts }],
    nextCursor: null,
  });
  t.equal(asked.at(-1), "/api/listings?search=a", "an older service refuses unknown names");
  t.same(JSON.parse(await run("listings", "--detail", "full")), JSON.parse(answer));
  t.equal(asked.at(-1), "/api/listings?detail=full");
});

t.test("the validator names a price by use as the most", async (t) => {
  const offer = {
    offer: 1,
    price: "0.05",
    networkName: "Arc",
    payTo: "0x1",
    simulation: { why: "It holds." },
  };
  const checked = (more: object) => ({
    url: "https://a.example/",
    method: "GET",
    ok: true,
    status: 402,
    findings: [],
    offers: [{ ...offer, ...more }],
    clients: [],
    listed: { why: "It is listed." },
  });
  for (const [more, price] of [
    [{ maximum: true }, "up to 0.05 USDC"],
    [{}, "0.05 USDC"],
  ] as const) {
    answer = JSON.stringify(checked(more));
    t.match(await run("validate", "https://a.example/"), `Offer 1: ${price} on Arc to 0x1.`);
  }
});

t.test("what a command would ignore is refused, and nothing is sent", async (t) => {
  const before = asked.length;
  for (const [args, detail, suggestion] of [
    [["spend", "0x1", "1", "--dry-run"], "purser spend has no option --dry-run", /spend --help/],
    [["spend", "0x1", "1", "--max", "2"], "purser spend has no option --max", /spend --help/],
    [["spend", "0x1", "1", "2"], 'purser spend does not take "2"', /spend --help/],
    [["fetch", "https://a.example", "--listing", "lst_1"], /not both/, /fetch --help/],
    [["me", "--unknown"], "Unknown option '--unknown'", /me --help/],
    [["task", "close", "a", "b"], 'purser task does not take "b"', /task --help/],
    [["dance", "--max", "1"], 'there is no command "dance"', /purser --help/],
  ] as const) {
    let out = "";
    const print = (line: string): void => void (out += line);
    t.equal(await main([...args], env, print), 2, args.join(" "));
    t.match(JSON.parse(out), { code: "usage", detail, suggestion });
  }
  t.equal(asked.length, before);
});
