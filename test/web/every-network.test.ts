// Goal: an owner sees the balance on every network and withdraws from the chosen one; a network that is down
// does not hide the others.
// Tier: full (tries every variant of one feature).
import { mkdir } from "node:fs/promises";
import t from "tap";
import { testChain } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { stealFrom } from "../reconciliation/world.ts";
import { usdcOf } from "../spending/ledger.helper.ts";
import { DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

const other = await testChain(t, { chainId: 5042, blockTimeSeconds: 0.5 });
const world = await webWorld(t, {
  env: { NETWORKS: "eip155:5042002,eip155:5042", RPC_URL_5042: other.rpcUrl },
});
const owner = await signIn(world, DEMO_OWNER);
const agent = await createAgent(world, owner, { name: "two-places" });
await other.mint(agent.walletAddress, 5_000_000n);

/** `SCREENSHOTS=folder npm test -- test/web/every-network.test.ts` saves screenshots. */
const folder = process.env["SCREENSHOTS"];
if (folder !== undefined) await mkdir(folder, { recursive: true });

for (const [size, width, height] of [
  ["desktop", 1280, 900],
  ["phone", 360, 740],
] as const)
  for (const colorScheme of ["light", "dark"] as const)
    t.test(`balance, funding and withdrawing, ${size}, ${colorScheme}`, async (t) => {
      const { page, faults } = await world.open(t, "/agents", { width, height, colorScheme });
      const shot = async (name: string) => {
        if (folder === undefined) return;
        await page.screenshot({ path: `${folder}/${name}-${size}-${colorScheme}.png` });
      };
      await signInWithDemoWallet(page);
      await page.getByRole("link", { name: "two-places", exact: true }).waitFor();
      await page.getByText("5.00 USDC").first().waitFor();
      await shot("agents");
      await page.goto(`${world.baseUrl}/agents/${agent.id}`);
      await page.getByText("On Arc", { exact: true }).waitFor();
      await shot("agent");
      await page.getByRole("button", { name: "Fund", exact: true }).click();
      await page.getByRole("radio", { name: "Address" }).check();
      await page.getByLabel("Network").selectOption({ label: "Arc" });
      await page.getByText("Send USDC on Arc to this address").waitFor();
      await page.getByRole("img", { name: /QR code/ }).waitFor();
      await shot("fund");
      await page.goto(`${world.baseUrl}/agents/${agent.id}/withdraw`);
      await page.getByLabel("Network").waitFor();
      await page.getByText("The agent holds 5.00 USDC").waitFor();
      t.equal(
        await page.getByLabel("Network").inputValue(),
        "eip155:5042",
        "a network with a balance is selected",
      );
      t.equal(await page.getByRole("button", { name: "Archive agent…" }).isDisabled(), true);
      await page.evaluate(() => document.querySelector("select")?.scrollIntoView());
      await shot("withdraw");
      t.ok(
        await page.evaluate(() => document.body.scrollWidth <= document.body.clientWidth),
        "nothing overflows the screen",
      );
      t.same(faults, []);
    });

t.test("an unreadable network is reported, and does not hide the others", async (t) => {
  await world.chain.mint(agent.walletAddress, 2_000_000n);
  await other.stop();
  const { page } = await world.open(t, "/agents");
  await signInWithDemoWallet(page);
  await page.getByText("not including Arc, which cannot be read").waitFor();
  await page.getByText("2.00 USDC").first().waitFor();
  if (folder !== undefined) await page.screenshot({ path: `${folder}/down.png` });
  await page.goto(`${world.baseUrl}/agents/${agent.id}/withdraw`);
  await page.getByLabel("Network").getByText("Arc: cannot be read").waitFor({ state: "attached" });
  await other.start();
});

t.test("the chosen network is signed for, and the money leaves it", async (t) => {
  const { page, faults } = await world.open(t, `/agents/${agent.id}/withdraw`);
  await signInWithDemoWallet(page);
  const before = await usdcOf({ chain: other }, DEMO_OWNER.address);
  await page.getByLabel("Network").selectOption("eip155:5042");
  await page.getByLabel("Amount").fill("5.5");
  await page.getByRole("button", { name: "Review withdrawal" }).click();
  await page.getByText("The agent has only 5.00 USDC on this network.").waitFor();
  await page.getByRole("button", { name: "Max" }).click();
  await page.getByRole("button", { name: "Review withdrawal" }).click();
  await page.getByText("Arc (your wallet shows 5042)", { exact: true }).waitFor();
  await page.getByRole("button", { name: "Switch to Arc" }).click();
  await page.getByRole("button", { name: "Sign and withdraw" }).click();
  await page.getByText("Confirmed on chain.").waitFor();
  t.equal((await usdcOf({ chain: other }, DEMO_OWNER.address)) - before, 5_000_000n);
  t.same(faults, []);
});

t.test("the overview reports whether the ledger matches the chain", async (t) => {
  const { page } = await world.open(t, "/agents");
  await signInWithDemoWallet(page);
  await page
    .getByText(/The ledger matches the chain as of block [\d,]+ on Arc Testnet, [\d,]+ on Arc/)
    .waitFor();
  const stolen = await stealFrom(world, agent.walletAddress, 500_000n);
  for (const [size, width, height] of [
    ["desktop", 1280, 900],
    ["phone", 360, 740],
  ] as const)
    for (const colorScheme of ["light", "dark"] as const) {
      const { page: other } = await world.open(t, "/agents", { width, height, colorScheme });
      await signInWithDemoWallet(other);
      // Reconciliation waits before it reports money that no authorization explains, and this machine may be
      // busy.
      await other
        .getByText(/The ledger differs from the chain on Arc Testnet, as of block/)
        .waitFor({ timeout: 100_000 });
      await other.getByText("its key may be stolen").waitFor();
      await other.getByText(stolen.slice(0, 8)).waitFor();
      await other.getByText(/The ledger matches the chain as of block [\d,]+ on Arc$/).waitFor();
      if (folder !== undefined)
        await other.screenshot({ path: `${folder}/ledger-${size}-${colorScheme}.png` });
      t.ok(
        await other.evaluate(() => document.body.scrollWidth <= document.body.clientWidth),
        `${size} ${colorScheme}`,
      );
    }
});
