// Goal: the app loads quickly: little JavaScript at first, the rest on demand, and long lists scroll
// smoothly.
// Tier: full (tries every variant of one feature).
import { gzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import t from "tap";
import { createAgent, signIn } from "../helpers/owner.ts";
import { asAgent, DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

const INITIAL_LIMIT_BYTES = 250 * 1024;
const FIRST_CONTENT_LIMIT_MS = 1_500;

/** The gzipped size of every script that the page loads until it shows the expected text. */
async function scriptsUntil(
  page: Page,
  url: string,
  text: string,
): Promise<{ bytes: number; names: string[] }> {
  const bodies: Promise<{ name: string; bytes: number }>[] = [];
  page.on("response", (response) => {
    if (response.request().resourceType() !== "script") return;
    bodies.push(
      (async () => ({
        name: new URL(response.url()).pathname,
        bytes: gzipSync(await response.body(), { level: 6 }).length,
      }))(),
    );
  });
  await page.goto(url);
  await page.getByText(text).first().waitFor();
  const loaded = await Promise.all(bodies);
  return {
    bytes: loaded.reduce((sum, { bytes }) => sum + bytes, 0),
    names: loaded.map(({ name }) => name),
  };
}

t.test("weight and speed", async (t) => {
  const world = await webWorld(t);
  const owner = await signIn(world, DEMO_OWNER);

  await t.test(
    "the first screens need little JavaScript, and no chart, QR code or wallet code",
    async (t) => {
      for (const [path, text] of [
        ["/", "Arc Testnet, block"],
        ["/agents", "Sign in with your wallet"],
        ["/developers", "Connect over MCP"],
      ] as const) {
        const { page } = await world.open(t, "/theme.js");
        const { bytes, names } = await scriptsUntil(page, world.baseUrl + path, text);
        t.comment(`${path}: ${Math.round(bytes / 1024)} kB gzipped in ${names.length} files`);
        t.ok(bytes <= INITIAL_LIMIT_BYTES, `${path} loads ${bytes} bytes`);
        t.notMatch(
          names.join(" "),
          /Bars|checksum|demo-|qrcode/i,
          `${path} is without what it does not need`,
        );
      }
    },
  );

  await t.test("the browser gets the compressed files from the build", async (t) => {
    const { page } = await world.open(t, "/theme.js");
    const encodings = new Set<string | undefined>();
    page.on("response", (response) => {
      if (/assets\/index-.*\.(js|css)$/.test(response.url()))
        encodings.add(response.headers()["content-encoding"]);
    });
    await page.goto(`${world.baseUrl}/`);
    await page.getByText("Arc Testnet, block").waitFor();
    t.same([...encodings], ["br"]);
  });

  await t.test("first content appears quickly", async (t) => {
    const { page } = await world.open(t, "/");
    // The second visit to a warm server, as a user of a local service sees it.
    await page.goto(`${world.baseUrl}/`);
    await page.getByText("Arc Testnet, block").waitFor();
    // A busy browser records the paint a little after the text is in the document.
    const paintedMs = await page.evaluate(
      () =>
        new Promise<number>((resolve) => {
          new PerformanceObserver((list, observer) => {
            const [paint] = list.getEntriesByName("first-contentful-paint");
            if (!paint) return;
            observer.disconnect();
            resolve(paint.startTime);
          }).observe({ type: "paint", buffered: true });
        }),
    );
    t.comment(`first content after ${Math.round(paintedMs)} ms`);
    t.ok(paintedMs < FIRST_CONTENT_LIMIT_MS, `first content after ${paintedMs} ms`);
  });

  await t.test("200 agents are all listed, found by search, and sorted", async (t) => {
    for (let index = 0; index < 200; index += 1)
      await createAgent(world, owner, { name: `agent-${String(index).padStart(3, "0")}` });
    const { page, faults } = await world.open(t, "/agents");
    await signInWithDemoWallet(page);
    await page.getByText("200 of 200 agents shown").waitFor();
    const startedMs = performance.now();
    await page.getByRole("textbox", { name: /Search agents/ }).pressSequentially("agent-19");
    await page.getByText("10 of 200 agents shown").waitFor();
    t.comment(
      `typing eight letters and seeing the result took ${Math.round(performance.now() - startedMs)} ms`,
    );
    t.equal(await page.getByRole("textbox", { name: /Search agents/ }).inputValue(), "agent-19");
    await page.getByLabel("Sort by").selectOption({ label: "Name" });
    const [first] = await page.getByRole("link", { name: /^agent-/ }).allInnerTexts();
    t.equal(first, "agent-190");
    await page.reload();
    await page.getByText("10 of 200 agents shown").waitFor();
    t.same(faults, []);
  });

  await t.test("5,000 payments scroll without a gap, a duplicate or a freeze", async (t) => {
    const agent = await createAgent(world, owner, { name: "busy", dailyLimit: "1" });
    const pay = { recipient: DEMO_OWNER.address, amount: "0.5" };
    t.match(await asAgent(world, agent.apiKey, "spend", pay), { status: 403 });
    // Copies of the one blocked payment.
    await world.app.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, denial_code, policy, created_at)
       SELECT agent_id, 'pay_' || lpad(n::text, 26, '0'), kind, status, chain_id, asset, counterparty, amount,
              denial_code, policy, created_at - n * interval '1 minute'
         FROM payments, generate_series(1, 4999) n WHERE agent_id = $1`,
      [agent.id],
    );
    const { page, faults } = await world.open(t, `/agents/${agent.id}`);
    await signInWithDemoWallet(page);
    const rows = page.getByRole("region", { name: "Activity" }).getByRole("listitem");
    await rows.first().waitFor();
    for (let pages = 2; pages <= 12; pages += 1) {
      await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
      await page.waitForFunction(
        (count) => document.querySelectorAll("section[aria-label=Activity] li").length >= count,
        pages * 50,
      );
    }
    const count = await rows.count();
    t.ok(count >= 600, `${count} rows are loaded`);
    const longestMs = await page.evaluate(async () => {
      let longest = 0;
      let before = performance.now();
      for (let frame = 0; frame < 60; frame += 1) {
        scrollTo(0, (document.body.scrollHeight / 60) * frame);
        await new Promise((done) => requestAnimationFrame(done));
        longest = Math.max(longest, performance.now() - before);
        before = performance.now();
      }
      return longest;
    });
    t.comment(`longest frame while scrolling ${count} rows: ${Math.round(longestMs)} ms`);
    t.ok(longestMs < 1_000, "the page never freezes");
    t.same(faults, []);
  });
});
