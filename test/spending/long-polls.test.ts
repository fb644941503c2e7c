// Goal: an owner's agents cannot exhaust a process with long polls; a poll above the limit is answered at once with
// the current state.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { asOwner, createAgent, signIn, type SignedInOwner } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

/** Long polls per agent, and per owner over all agents, in one process. */
const OF_AGENT = 8;
const OF_OWNER = 32;

const ctx = await testApp(t);
const { app } = ctx;

async function openRequest(owner: SignedInOwner) {
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [] });
  const recipient = privateKeyToAccount(generatePrivateKey()).address;
  const response = await spendAs(app, agent, { recipient, amount: "1", requestApproval: true });
  t.equal(response.statusCode, 202, response.body);
  const { approvalId } = response.json<{ approvalId: string }>();
  const poll = async () => {
    const url = `/api/agents/approvals/${approvalId}?wait=30`;
    const answer = await app.inject({ url, headers: agent.headers });
    t.equal(answer.statusCode, 200, answer.body);
    return answer.json<{ status: string }>().status;
  };
  const decline = () =>
    asOwner(app, owner, { method: "POST", url: `/api/approvals/${approvalId}/decline` });
  return { poll, decline };
}

t.test("more long polls than an owner may have", async (t) => {
  const owner = await signIn(ctx);
  const requests = [];
  for (let nth = 0; nth < OF_OWNER / OF_AGENT + 1; nth += 1)
    requests.push(await openRequest(owner));
  const other = await openRequest(await signIn(ctx));
  const again = await openRequest(owner);
  const answers: string[] = [];
  const polls = requests.flatMap(({ poll }) =>
    Array.from({ length: OF_AGENT }, async () => void answers.push(await poll())),
  );
  await until(() => answers.length >= OF_AGENT, 15_000);
  t.same(new Set(answers), new Set(["open"]), "answered before any decision");
  const [first] = requests;
  t.equal(await first?.poll(), "open", "no further poll waits");

  const waits = other.poll();
  t.equal(answers.length, OF_AGENT, "the others still wait");
  await other.decline();
  t.equal(await waits, "declined", "another owner's agent waits until the decision");

  await Promise.all(requests.map(({ decline }) => decline()));
  await Promise.all(polls);
  t.equal(answers.filter((status) => status === "declined").length, OF_OWNER);
  const waiting = again.poll();
  await again.decline();
  t.equal(await waiting, "declined", "every slot was released");
});
