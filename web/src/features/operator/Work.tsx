import type { ReactNode } from "react";
import { Columns, KeyValues, Section } from "../../components/Layout.tsx";
import { formatUsdc } from "../../lib/money.ts";
import type { OperatorOverview } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { count, spanOf } from "./words.ts";

const CLASS: Readonly<Record<string, string>> = {
  withdrawals: "Withdrawals",
  agents: "Agents' payments",
  "third parties": "Third parties' payments",
};
const SHARE: Readonly<Record<string, string>> = {
  strangers: "Third parties",
  merchants: "Merchants",
  agents: "Agents",
  withdrawals: "Withdrawals",
};

const waits = ({ count: number, oldestSeconds }: { count: number; oldestSeconds: number }) =>
  number === 0 ? "none" : `${count(number)}, the oldest for ${spanOf(oldestSeconds)}`;

export function Work({ overview }: { overview: OperatorOverview }): ReactNode {
  const nameOf = useNetworkNames();
  const networks = overview.reconciliation.map(({ network }) => network);
  const suffix = (network: string) => (networks.length > 1 ? ` on ${nameOf(network)}` : "");
  return (
    <Columns>
      <Section title="Waiting for a block" hint="Withdrawals go first, third parties last.">
        <KeyValues
          rows={[
            ...overview.waiting.map(
              (row) =>
                [`${CLASS[row.class] ?? row.class}${suffix(row.network)}`, waits(row)] as const,
            ),
            ...overview.unknown.map(
              (row) => [`Outcome not known${suffix(row.network)}`, waits(row)] as const,
            ),
          ]}
        />
      </Section>
      <Section title="Gas budgets" hint="What is left of a day's budget, and what was used in all.">
        <KeyValues
          rows={overview.gas.map(
            ({ network, share, left, perDay, used }) =>
              [
                `${SHARE[share] ?? share}${suffix(network)}`,
                `${formatUsdc(left)} of ${formatUsdc(perDay)} USDC left, ${formatUsdc(used)} used`,
              ] as const,
          )}
        />
      </Section>
      <Requests requests={overview.requests} />
      <Parts overview={overview} />
    </Columns>
  );
}

const OUTCOME: Readonly<Record<string, string>> = {
  ok: "done",
  refused: "refused",
  pending: "pending",
  error: "failed",
};

function Requests({ requests }: { requests: OperatorOverview["requests"] }): ReactNode {
  return (
    <Section title="Facilitator, 24 hours" hint="Requests of paid APIs, by their outcome.">
      {requests.length === 0 ? (
        <p>No requests.</p>
      ) : (
        <KeyValues
          rows={requests.map(
            ({ operation, outcome, count: number }) =>
              [
                `${operation === "verify" ? "Verify" : "Settle"}, ${OUTCOME[outcome] ?? outcome}`,
                count(number),
              ] as const,
          )}
        />
      )}
    </Section>
  );
}

function Parts({ overview: { parts, screening, failing } }: { overview: OperatorOverview }) {
  const nameOf = useNetworkNames();
  const partName = (part: string): string => {
    const [name = part, ...network] = part.split(":");
    return network.length === 0 ? name : `${name}, ${nameOf(network.join(":"))}`;
  };
  return (
    <Section title="Parts" hint="As load balancers see them.">
      <KeyValues
        rows={[
          ...parts.map(
            ({ part, ok, detail }) =>
              [partName(part), ok ? detail : `Not ready: ${detail}`] as const,
          ),
          ["screening", screeningOf(screening)],
          [
            "background jobs",
            failing.jobs === 0 ? "none failed" : `${failing.jobs} failed for good`,
          ],
        ]}
      />
    </Section>
  );
}

function screeningOf(screening: OperatorOverview["screening"]): string {
  if (screening === null) return "off";
  const { listAgeSeconds, maxAgeSeconds } = screening;
  if (listAgeSeconds === null) return "by a service";
  const most = maxAgeSeconds === null ? "" : `, at most ${spanOf(maxAgeSeconds)}`;
  return `a list, ${spanOf(listAgeSeconds)} old${most}`;
}
