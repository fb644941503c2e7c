// Goal: the refusal of a request names each field by its place, and says what is wrong with it.
import t from "tap";
import { toApiError } from "../../server/plugins/http/errors.ts";

interface Issue {
  instancePath: string;
  keyword: string;
  params: object;
  message: string;
}

const errorsOf = (validationContext: string, ...issues: Issue[]) => {
  const validation = issues.map((issue) => ({ ...issue, schemaPath: "" }));
  const facts = { code: "", name: "", validationContext, validation };
  const error = Object.assign(new Error("refused"), facts);
  return toApiError(error as unknown as Parameters<typeof toApiError>[0]);
};

t.test("a field that is missing, unknown or wrong", async (t) => {
  const missing = {
    instancePath: "/payee",
    keyword: "required",
    params: { missingProperty: "amount" },
    message: "must have required property 'amount'",
  };
  const unknown = {
    instancePath: "",
    keyword: "additionalProperties",
    params: { additionalProperty: "amout" },
    message: "must NOT have additional properties",
  };
  const wrong = {
    instancePath: "/limit",
    keyword: "type",
    params: { type: "string" },
    message: "must be string",
  };
  t.match(errorsOf("body", missing, unknown), {
    code: "validation_failed",
    message: "body.payee.amount is missing; body.amout is not a known field",
    extra: {
      errors: [
        { path: "body.payee.amount", message: "is missing" },
        { path: "body.amout", message: "is not a known field" },
      ],
    },
  });
  t.match(errorsOf("querystring", unknown, wrong).extra["errors"], [
    { path: "query.amout" },
    { path: "query.limit", message: "must be string" },
  ]);
  t.match(errorsOf("params", wrong).extra["errors"], [{ path: "params.limit" }]);
});

t.test("a field of another form is refused in words, not with a regular expression", async (t) => {
  const messageFor = (pattern: string) => {
    const message = `must match pattern "${pattern}"`;
    const issue = { instancePath: "/limit", keyword: "pattern", params: { pattern }, message };
    return errorsOf("querystring", issue).message;
  };
  t.equal(messageFor("^([1-9][0-9]?|100)$"), "query.limit must be a whole number from 1 to 100");
  t.equal(
    messageFor("^(a_b|c)(,(a_b|c))*$"),
    "query.limit must be one or more of a_b, c, separated by commas",
  );
  t.equal(messageFor("^new$"), "query.limit does not have the form that this field needs");
});
