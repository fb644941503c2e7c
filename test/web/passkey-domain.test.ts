// Goal: when the service moves to another domain, a real browser accepts the passkeys of the old one on the new pages, because
// the old domain names the new origin, and no other page may use them.
import { createHash, X509Certificate } from "node:crypto";
import { once } from "node:events";
import { request as forward } from "node:http";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { chromium, type Browser } from "playwright-core";
import t, { type Test } from "tap";
import { testApp, type TestApp } from "../helpers/app.ts";
import { launchOptions } from "../helpers/bundled-browser.ts";
import { openPage } from "../helpers/browser.ts";
import { testChain } from "../helpers/chain.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { isFullTier } from "../helpers/tier.ts";
import { selfSigned, type Tls } from "../packages/bad-connections.ts";
import { Devices } from "./passkey-devices.ts";

const OLD = "purser-old.example";
const NEW = "purser-new.example";
const STRANGER = "stranger.example";

const tls = selfSigned(t.testdir({}), [OLD, NEW, STRANGER]);
const skip =
  (!isFullTier && "in the full tier") || (tls === undefined && "there is no openssl here");

/** Serves https for each name from the service behind it. */
async function proxy(t: Test, { key, cert }: Tls, behind: Map<string, TestApp>): Promise<number> {
  const server = createServer({ key, cert }, (request, response) => {
    const app = behind.get(request.headers.host ?? "");
    if (!app) {
      response.writeHead(404).end();
      return;
    }
    const { method, url: path, headers } = request;
    const inner = forward({ host: "127.0.0.1", port: app.config.port, method, path, headers });
    inner.on("response", (answer) => {
      response.writeHead(answer.statusCode ?? 502, answer.headers);
      answer.pipe(response);
    });
    inner.on("error", () => response.destroy());
    request.pipe(inner);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** All of these names lead to this port, and only this certificate is accepted although nobody signed it. */
async function browserFor(t: Test, { cert }: Tls, port: number): Promise<Browser> {
  const key = new X509Certificate(cert).publicKey.export({ type: "spki", format: "der" });
  const options = await launchOptions();
  const browser = await chromium.launch({
    headless: true,
    ...options,
    args: [
      ...(options.args ?? []),
      `--ignore-certificate-errors-spki-list=${createHash("sha256").update(key).digest("base64")}`,
      `--host-resolver-rules=MAP *.example 127.0.0.1:${port}`,
    ],
  });
  t.teardown(() => browser.close());
  return browser;
}

t.test("passkeys outlive a move to another domain", { skip }, async (t) => {
  if (!tls) throw new Error("unreachable");
  const shared = { database: await testDatabase(t), chain: await testChain(t), listen: true };
  const before = await testApp(t, { ...shared, env: { PUBLIC_URL: `https://${OLD}` } });
  const behind = new Map([[OLD, before]]);
  const browser = await browserFor(t, tls, await proxy(t, tls, behind));
  const { page, faults } = await openPage(t, browser, { reducedMotion: "reduce" });
  await Devices.of(page);

  await page.goto(`https://${OLD}/agents`);
  await page.getByRole("button", { name: "Create a passkey" }).click();
  await page.getByText("No agents yet").waitFor();

  const after = await testApp(t, {
    ...shared,
    env: { PUBLIC_URL: `https://${NEW}`, PASSKEY_DOMAIN: OLD },
  });
  behind.set(OLD, after).set(NEW, after);
  await page.goto(`https://${NEW}/agents`);
  await page.getByRole("button", { name: "Continue with a passkey" }).click();
  await page.getByText("No agents yet").waitFor();
  await page.getByRole("link", { name: "New agent" }).click();
  await page.getByLabel("Name").fill("moved");
  await page.getByLabel("Daily limit").fill("5");
  await page.getByRole("button", { name: "Create agent" }).click();
  await page.getByRole("heading", { name: "moved is ready" }).waitFor();

  await t.test("a page that the old domain does not name may not use them", async (t) => {
    const stranger = await testApp(t, {
      ...shared,
      env: { PUBLIC_URL: `https://${STRANGER}`, PASSKEY_DOMAIN: OLD },
    });
    behind.set(STRANGER, stranger);
    const other = await openPage(t, browser, { reducedMotion: "reduce" });
    await Devices.of(other.page);
    await other.page.goto(`https://${STRANGER}/agents`);
    await other.page.getByRole("button", { name: "Continue with a passkey" }).click();
    await other.page.getByText("The browser does not use passkeys at this address.").waitFor();
  });
  t.same(faults, []);
});
