// Goal: an owner sees in the app what lies in payment channels, and gets it back with one press; a payment through a channel never
// looks like a transaction, nor a deposit like spending.
// Tier: full (shows every state of one feature).
import t from "tap";
import { privateKeyToAccount } from "viem/accounts";
import { CHANNEL_KEY } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { picture, stepsOf } from "./pictures.ts";
import { DEMO_OWNER, signInWithDemoWallet, webWorld } from "./world.ts";

const PAYEE = testAccount(70).address;
/** Channels of another key would be closed. */
const SIGNER = privateKeyToAccount(CHANNEL_KEY).address.toLowerCase();
const idOf = (digit: string): string => `0x${digit.repeat(64)}`;
const HASH = `0x${"ab".repeat(32)}`;

t.test("payment channels in the app", async (t) => {
  const world = await webWorld(t);
  const { database, baseUrl, chain } = world;
  const owner = await signIn(world, DEMO_OWNER);
  const agent = await createAgent(world, owner, {
    name: "research-agent",
    allowlist: [{ address: PAYEE, label: "Weather API" }],
  });
  await chain.mint(agent.walletAddress, 12_000_000n);
  // The rows that payments leave. The closing ones are not due, so that the background work leaves them.
  const channel = async (row: {
    digit: string;
    url: string | null;
    status: string;
    reason?: string;
    deposit: number;
    ceiling: number;
    charged: number;
    returned?: number;
    returnsInMinutes?: number;
  }): Promise<void> => {
    const { digit, url, status, reason = null, deposit, ceiling, charged } = row;
    const values = [agent.id, idOf(digit), chain.chainId, chain.usdc.toLowerCase()];
    await database.pool.query(
      `INSERT INTO channels (agent_id, id, chain_id, asset, receiver, receiver_authorizer, withdraw_delay, signer, salt,
         status, reason, ceiling, voucher, charged, returned, url, look_at, returns_at, closed_at)
       VALUES ($1, $2, $3, $4, $5, $5, 900, $14, $6, $7, $8, $9, decode(repeat('cd', 65), 'hex'), $10, $11, $12, 'infinity',
         now() + $13 * interval '1 minute', CASE WHEN $7 = 'closed' THEN now() END)`,
      [
        ...values,
        PAYEE.toLowerCase(),
        idOf(digit),
        status,
        reason,
        ceiling,
        charged,
        row.returned ?? 0,
        url,
        row.returnsInMinutes ?? null,
        SIGNER,
      ],
    );
    await database.pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, channel_id, tx_hash, nonce,
         settled_at, final_at)
       VALUES ($1, 'pay_deposit' || $7, 'deposit', 'settled', $3, $4, $5, $6, $2, $8, $2, now(), now())`,
      [...values, PAYEE.toLowerCase(), deposit, digit, HASH],
    );
  };
  await channel({
    digit: "4",
    url: "https://old.example/a",
    status: "closed",
    reason: "owner",
    deposit: 500_000,
    ceiling: 120_000,
    charged: 120_000,
    returned: 380_000,
  });
  await channel({
    digit: "3",
    url: "https://slow.example/a",
    status: "closing",
    reason: "owner",
    deposit: 300_000,
    ceiling: 100_000,
    charged: 90_000,
    returnsInMinutes: 14,
  });
  await channel({
    digit: "2",
    url: null,
    status: "closing",
    reason: "owner",
    deposit: 200_000,
    ceiling: 50_000,
    charged: 50_000,
  });
  await channel({
    digit: "1",
    url: "https://weather.example/today",
    status: "open",
    deposit: 1_000_000,
    ceiling: 250_000,
    charged: 249_300,
  });
  await database.pool.query(
    `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, url, channel_id, ceiling, charged,
       voucher, delivered, upstream_status, settled_at, final_at)
     VALUES ($1, 'pay_voucher', 'x402', 'settled', $2, $3, $4, 1000, 'https://weather.example/today', $5, 250000, 700,
       decode(repeat('cd', 65), 'hex'), TRUE, 200, now(), now())`,
    [agent.id, chain.chainId, chain.usdc.toLowerCase(), PAYEE.toLowerCase(), idOf("1")],
  );
  const { page, faults } = await world.open(t, `/agents/${agent.id}/channels`, {
    reducedMotion: "reduce",
  });
  await signInWithDemoWallet(page);
  const step = stepsOf(t);
  const row = (seller: string) => page.getByRole("listitem").filter({ hasText: seller });

  await step("each channel says what is in it, and how it ends", async () => {
    await row("weather.example").filter({ hasText: "Open" }).waitFor();
    for (const amount of ["1.00", "0.25", "0.75"])
      await row("weather.example").getByText(amount).first().waitFor();
    await row("slow.example")
      .getByText(/Closing: withdrawal until .*\d\d:\d\d/)
      .waitFor();
    await row("Closing: the seller was asked").waitFor();
    await row("old.example").filter({ hasText: "Closed" }).getByText("0.38").waitFor();
    await picture(page, "channels", true);
  });

  await step("payments through a channel are marked, and show their voucher", async (t) => {
    await page.goto(`${baseUrl}/agents/${agent.id}`);
    await page.getByText("Paid API · through a channel").waitFor();
    await page.getByText("Deposit into a channel").first().waitFor();
    await picture(page, "channel-payments", true);
    await page.getByRole("button", { name: "weather.example/today" }).click();
    const drawer = page.getByRole("dialog");
    await drawer.getByText("Paid through a channel").waitFor();
    await drawer.getByText(`0x${"cd".repeat(65)}`).waitFor();
    t.equal(await drawer.getByText("Transaction", { exact: true }).count(), 0);
    await picture(page, "channel-payment");
    await page.goto(`${baseUrl}/agents/${agent.id}?payment=pay_deposit1`);
    await drawer.getByText("It is not spent, and does not count").waitFor();
    await drawer.getByText("Transaction", { exact: true }).waitFor();
  });

  await step("a withdrawal says what is in channels, and closes them", async () => {
    await page.goto(`${baseUrl}/agents/${agent.id}/withdraw`);
    await page.getByText("is in 3 payment channels").waitFor();
    await picture(page, "channel-withdraw", true);
    await page.getByRole("button", { name: "Close the channel" }).click();
    const dialog = page.getByRole("dialog");
    await dialog.getByText("that takes at most 15 minutes and a few minutes more").waitFor();
    await picture(page, "channel-close");
    await dialog.getByRole("button", { name: "Close channel", exact: true }).click();
    await page.getByText("It is on its way back").waitFor();
  });

  await step("what happens to it appears by itself", async () => {
    await page.goto(`${baseUrl}/agents/${agent.id}/channels`);
    await row("weather.example").getByText("Closing: the seller was asked").waitFor();
    await database.pool.query(
      "UPDATE channels SET status = 'closed', closed_at = now(), returned = 750700 WHERE id = $1",
      [idOf("1")],
    );
    await row("weather.example").getByText("Closed", { exact: true }).waitFor();
    await page.goto(`${baseUrl}/notifications`);
    await page.getByText(/A payment channel of research-agent is closed: 0\.7507 USDC/).waitFor();
  });
  t.same(faults, []);
});
