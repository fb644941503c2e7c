import { Badge } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { Section } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import { formatUsdc } from "../../lib/money.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { accountsQuery, deliveriesQuery, merchantsQuery } from "./api.ts";
import { Nothing, Row } from "./Row.tsx";
import { count } from "./words.ts";

const KIND: Readonly<Record<string, string>> = {
  payer: "Payer",
  payee: "Payee",
  merchant: "Merchant",
  owner: "Agents of an owner",
  withdrawer: "Withdrawals of an owner",
  answers: "Kept answers of an owner",
  strangers: "All third parties",
  merchants: "All merchants",
  agents: "All agents",
  withdrawals: "All withdrawals",
};

function nameOfAccount(account: string): ReactNode {
  const [kind = "", ...rest] = account.split(":");
  const of = rest.join(":");
  return (
    <>
      {KIND[kind] ?? kind} {/^0x[0-9a-f]{40}$/.test(of) ? <Address value={of} copy={false} /> : of}
    </>
  );
}

export function LowAccounts(): ReactNode {
  const nameOf = useNetworkNames();
  const query = useQuery(accountsQuery);
  return (
    <Section
      flush
      title="Accounts near a limit"
      hint="Less than a fifth of a day's budget is left. It refills by itself."
    >
      <QueryStatus query={query} what="accounts" failed="Accounts could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {query.data?.items.length === 0 && <Nothing>No account is near a limit.</Nothing>}
      <ul>
        {query.data?.items.map(({ network, account, left, used }) => (
          <Row
            key={`${network ?? ""}${account}`}
            title={nameOfAccount(account)}
            detail={[
              network !== null && nameOf(network),
              used !== null && `${formatUsdc(used)} USDC of gas in all`,
            ]
              .filter(Boolean)
              .join(" · ")}
          >
            <Badge color={left === 0 ? "red" : "yellow"}>{left} % left</Badge>
          </Row>
        ))}
      </ul>
    </Section>
  );
}

export function PaidMerchants(): ReactNode {
  const nameOf = useNetworkNames();
  const query = useQuery(merchantsQuery);
  const { data } = query;
  return (
    <Section
      flush
      title="Merchants, 24 hours"
      hint={
        data?.complete === false
          ? "Only the newest settlements are counted: there were more."
          : "Who was paid through this facilitator."
      }
    >
      <QueryStatus query={query} what="merchants" failed="Merchants could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {data?.items.length === 0 && <Nothing>No settlements.</Nothing>}
      <ul>
        {data?.items.map(({ network, address, settled, failed, open, volume, fees }) => (
          <Row
            key={`${network}${address}`}
            title={<Address value={address} />}
            detail={[
              nameOf(network),
              `${count(settled)} settled`,
              failed > 0 && `${count(failed)} failed`,
              open > 0 && `${count(open)} open`,
              fees !== "0" && `${formatUsdc(fees)} USDC of fees`,
            ]
              .filter(Boolean)
              .join(" · ")}
          >
            <Money amount={volume} />
          </Row>
        ))}
      </ul>
    </Section>
  );
}

const WAY: Readonly<Record<string, string>> = {
  webhook: "Webhook",
  mail: "E-mail",
  device: "Device",
};

export function FailingDeliveries(): ReactNode {
  const query = useQuery(deliveriesQuery);
  return (
    <Section
      flush
      title="Webhooks, e-mail and devices that fail"
      hint="Hosts and errors are third parties' text."
    >
      <QueryStatus query={query} what="deliveries" failed="Deliveries could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {query.data?.items.length === 0 && <Nothing>Everything is delivered.</Nothing>}
      <ul>
        {query.data?.items.map(({ id, way, owner, failures, disabled, since, thirdParty }) => (
          <Row
            key={id}
            title={
              <>
                {WAY[way] ?? way} {thirdParty.host}
              </>
            }
            detail={
              <>
                Owner <Address value={owner} copy={false} />
                {since !== null && (
                  <>
                    {" "}
                    · since <TimeAgo iso={since} />
                  </>
                )}
                {thirdParty.error !== null && ` · “${thirdParty.error}”`}
              </>
            }
          >
            <Badge color={disabled ? "red" : "yellow"}>
              {disabled ? "Disabled" : `${count(failures)} failed`}
            </Badge>
          </Row>
        ))}
      </ul>
    </Section>
  );
}
