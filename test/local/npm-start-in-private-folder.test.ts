// Goal: `npm start` on a clone serves, says plainly what is wrong when it cannot, and leaves nothing running,
// also when nobody but this user may enter the folder above; for root, whom Postgres refuses, the hard case.
import t from "tap";
import { freshCopy } from "../helpers/fresh-copy.ts";
import { firstPayment, firstStart, kills, refusals } from "./whole-life.ts";

t.test("in a folder only this user may enter", async (t) => {
  const life = await firstStart(t, freshCopy(t, 0o700));
  await firstPayment(t, life);
  await refusals(t, life);
  await kills(t, life, "Ctrl-C");
});
