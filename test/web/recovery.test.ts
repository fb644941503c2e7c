// Goal: a person names a second wallet with one press, sees it, and takes it back.
import t from "tap";
import { privateKeyToAccount, generatePrivateKey } from "viem/accounts";
import { signInWithDemoWallet, webWorld } from "./world.ts";

t.test("the second wallet, in the settings", async (t) => {
  const world = await webWorld(t);
  const { page, faults } = await world.open(t, "/settings", { reducedMotion: "reduce" });
  const { address } = privateKeyToAccount(generatePrivateKey());
  await signInWithDemoWallet(page);
  await page.getByText("Address of your second wallet").waitFor();
  await page.getByLabel("Address of your second wallet").fill(address);
  await page.getByRole("button", { name: "Sign and name it" }).click();
  await page.getByText("Make it the owner").waitFor();
  await page.getByText(address).waitFor();
  const shots = process.env["SCREENSHOTS"];
  if (shots !== undefined) await page.screenshot({ path: `${shots}/second.png`, fullPage: true });
  await page.getByRole("button", { name: "Take it back" }).click();
  await page.getByText("Address of your second wallet").waitFor();
  t.equal(await page.getByText(address).count(), 0);
  const { rows } = await world.database.pool.query(
    "SELECT action FROM audit_log WHERE action = 'second.named'",
  );
  t.equal(rows.length, 2);
  t.same(faults, []);
});
