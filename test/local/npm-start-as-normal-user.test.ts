// Goal: `npm start` on a clone serves, says plainly what is wrong when it cannot, and leaves nothing running,
// for a user without privileges.
// Tier: full (starts a fresh clone once more).
import t from "tap";
import { freshCopy } from "../helpers/fresh-copy.ts";
import { firstStart, kills, stopWhileBuilding } from "./whole-life.ts";

const NOBODY = { uid: 65534, gid: 65534 };

t.test("as a normal user", async (t) => {
  const user = process.getuid?.() === 0 ? NOBODY : undefined;
  const copy = freshCopy(t, 0o755, user);
  await stopWhileBuilding(t, copy);
  await kills(t, await firstStart(t, copy), "SIGTERM to npm alone");
});
