import { Badge, Button, EmptyState, Stack } from "@mantine/core";
import { queryOptions, useInfiniteQuery, useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { AccessRow } from "../../components/AccessRow.tsx";
import { CodeBlock } from "../../components/CodeBlock.tsx";
import { DownloadIcon } from "../../components/icons.tsx";
import { Note, Section, Stat, Stats } from "../../components/Layout.tsx";
import { List } from "../../components/List.tsx";
import { Money } from "../../components/Money.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { api } from "../../lib/api.ts";
import { formatUsdc } from "../../lib/money.ts";
import { pagedQuery } from "../../lib/pages.ts";
import { keys } from "../../lib/query-keys.ts";
import type { FeeEntry, MerchantFees } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";

const FRESH_MS = 5_000;
const FEES = "/api/merchant/fees";

const feesQuery = queryOptions({
  queryKey: keys.merchantFees,
  queryFn: ({ signal }) => api.get<MerchantFees>(FEES, { signal }),
  refetchInterval: FRESH_MS,
});

/** Nothing where this facilitator charges nothing and this wallet never owed anything. */
export function Fees(): ReactNode {
  const { data: fees } = useQuery(feesQuery);
  if (!fees || (fees.terms === null && fees.accounts.length === 0)) return null;
  return <FeesSection fees={fees} />;
}

function FeesSection({ fees }: { fees: MerchantFees }): ReactNode {
  const nameOf = useNetworkNames();
  const entries = useInfiniteQuery({
    ...pagedQuery<FeeEntry>(keys.merchantFeeEntries, `${FEES}/entries`),
    refetchInterval: FRESH_MS,
  });
  const { accounts, pay } = fees;
  const isRefused = accounts.some(({ refused }) => refused);
  return (
    <>
      <Section
        title="Fees"
        hint={hintOf(fees)}
        actions={
          <Button component="a" href={`${FEES}/entries.csv`}>
            <DownloadIcon size={16} />
            CSV<span className="sr-only"> of fees</span>
          </Button>
        }
      >
        <Stack gap="md">
          {isRefused && (
            <Note color="yellow">
              <strong>New payments are refused.</strong> You owe more than your credit. Pay what you
              owe, and payments work again at once.
            </Note>
          )}
          {accounts.length > 0 && (
            <Stats>
              {accounts.map(({ network, owed, prepaid, charged }) => (
                <Stat
                  key={network}
                  label={`Owed on ${nameOf(network)}`}
                  note={
                    prepaid === "0"
                      ? `${formatUsdc(charged)} USDC charged in all`
                      : `${formatUsdc(prepaid)} USDC paid in advance`
                  }
                >
                  <Money amount={owed} />
                </Stat>
              ))}
            </Stats>
          )}
          {pay !== null && accounts.length > 0 && (
            <>
              <p>
                Pay with any x402 client: a POST to this address answers 402 with what you owe. Add{" "}
                <code>&amp;amount=</code> for another amount, and <code>&amp;network=</code> for
                another network.
              </p>
              <CodeBlock label="Address for payments" code={pay} />
            </>
          )}
        </Stack>
      </Section>
      <Section flush title="Fees and payments">
        <List
          query={entries}
          what="fees"
          failed="Fees could not be loaded"
          placeholders={3}
          empty={
            <EmptyState
              title="No fees yet"
              description="Each settlement to your wallet adds one line."
            />
          }
        >
          {(entry) => <EntryRow key={entry.id} entry={entry} network={nameOf(entry.network)} />}
        </List>
      </Section>
    </>
  );
}

function EntryRow({ entry, network }: { entry: FeeEntry; network: string }): ReactNode {
  const { kind, amount, settled, createdAt } = entry;
  const isFee = kind === "fee";
  return (
    <AccessRow
      name={`${formatUsdc(amount)} USDC`}
      detail={isFee ? `for ${formatUsdc(settled)} USDC on ${network}` : `on ${network}`}
      badge={isFee ? <Badge>Fee</Badge> : <Badge color="green">Paid</Badge>}
      times={<TimeAgo iso={createdAt} />}
    />
  );
}

function hintOf({ terms }: MerchantFees): string {
  if (terms === null)
    return "This facilitator charges no fees now. What was charged is still owed.";
  const parts = [
    ...(terms.perSettlement === "0" ? [] : [`${formatUsdc(terms.perSettlement)} USDC`]),
    ...(terms.perMille === "0" ? [] : [`${terms.perMille} per mille of the amount`]),
  ];
  return `This facilitator charges you ${parts.join(" and ")} for each settlement, at most a tenth of it. You may owe ${formatUsdc(terms.credit)} USDC on a network.`;
}
