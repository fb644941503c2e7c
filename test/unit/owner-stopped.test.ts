// Goal: what the database refuses because an owner stopped everything is refused by name, and is no internal error.
import t from "tap";
import { OWNER_STOPPED } from "../../server/infra/db/pool.ts";
import { toApiError } from "../../server/plugins/http/errors.ts";

t.test("the trigger's error, as it is and as Prisma wraps it", async (t) => {
  const raised = Object.assign(new Error("the owner stopped everything"), { code: OWNER_STOPPED });
  const cause = { kind: "postgres", originalCode: OWNER_STOPPED };
  const wrapped = Object.assign(new Error("Raw query failed"), {
    code: "P2010",
    meta: { driverAdapterError: Object.assign(new Error("x"), { cause }) },
  });
  for (const error of [raised, wrapped])
    t.match(toApiError(error), { code: "owner_stopped", status: 409 });
  const other = Object.assign(new Error("x"), { code: "PU999" });
  t.equal(toApiError(other as never).code, "internal_error");
});
