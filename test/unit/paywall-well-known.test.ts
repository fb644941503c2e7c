// Goal: `/.well-known/x402` of an app with the paywall lists what the app sells at the caller's host, and nothing else.
import Fastify from "fastify";
import t from "tap";
import { paywall, type PaywallOptions } from "../../packages/paywall/src/paywall.ts";

const OPTIONS: PaywallOptions = {
  facilitator: "http://127.0.0.1:9/api/x402",
  networks: ["eip155:84532"],
  payTo: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8",
};
const PAID = { paywall: { price: "0.01" } };
const PATH = "/.well-known/x402";

async function shop(options: Partial<PaywallOptions> = {}) {
  const app = Fastify();
  await app.register(paywall, { ...OPTIONS, ...options });
  app.get("/joke", { config: PAID }, async () => ({}));
  app.post("/joke", { config: PAID }, async () => ({}));
  app.get("/free", async () => ({}));
  app.get("/jokes/:id", { config: PAID }, async () => ({}));
  app.get("/files/*", { config: PAID }, async () => ({}));
  const constraints = { host: "other.example" };
  app.get("/only-there", { config: PAID, constraints }, async () => ({}));
  app.get("/versioned", { config: PAID, constraints: { version: "1.2.0" } }, async () => ({}));
  await app.register(async (part) => void part.get("/report", { config: PAID }, async () => ({})), {
    prefix: "/v2",
  });
  return app;
}

t.test("fixed paths with a price, each once, at the host that was asked", async (t) => {
  const app = await shop();
  const answer = await app.inject({ url: PATH, headers: { host: "shop.example:8080" } });
  t.equal(answer.statusCode, 200);
  t.equal(answer.headers["cache-control"], "no-store");
  const resources = ["http://shop.example:8080/joke", "http://shop.example:8080/v2/report"];
  t.same(answer.json(), { version: 1, resources });
  const there = await app.inject({ url: PATH, headers: { host: "other.example" } });
  t.match(there.json(), {
    resources: ["http://other.example/joke", "http://other.example/only-there"],
  });
});

t.test("a Host header that is no host never becomes part of a URL", async (t) => {
  const app = await shop();
  for (const host of ["evil.example/a?b=", "a@b", "127.1", "shop.example:99999"]) {
    const answer = await app.inject({ url: PATH, headers: { host } });
    t.equal(answer.statusCode, 400, host);
    t.match(answer.json(), { code: "invalid_host" });
  }
});

t.test("the public URL is used where one is set, whatever the caller's host", async (t) => {
  const app = await shop({ publicUrl: "https://shop.example" });
  const answer = await app.inject({ url: PATH, headers: { host: "evil.example/a" } });
  t.same(answer.json(), {
    version: 1,
    resources: ["https://shop.example/joke", "https://shop.example/v2/report"],
  });
});

t.test("off, or replaced by the app's own route", async (t) => {
  t.equal((await (await shop({ wellKnown: false })).inject(PATH)).statusCode, 404);
  const app = Fastify();
  app.get(PATH, async () => ({ mine: true }));
  await app.register(paywall, OPTIONS);
  t.same((await app.inject(PATH)).json(), { mine: true });
});

t.test("several paywalls in one app are one document", async (t) => {
  const app = Fastify();
  for (const name of ["a", "b"])
    await app.register(async (part) => {
      await part.register(paywall, { ...OPTIONS, assetsPath: `/assets-${name}` });
      part.get(`/${name}`, { config: PAID }, async () => ({}));
    });
  const answer = await app.inject({ url: PATH, headers: { host: "shop.example" } });
  t.same(answer.json(), {
    version: 1,
    resources: ["http://shop.example/a", "http://shop.example/b"],
  });
});
