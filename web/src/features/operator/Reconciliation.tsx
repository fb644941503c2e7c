import { Badge, Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { TimeAgo } from "../../components/RelativeTime.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import type { OperatorDifferences, OperatorOverview } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { CloseDifference, ReadAgain } from "./ActionDialogs.tsx";
import { differencesQuery } from "./api.ts";
import { Nothing, Row } from "./Row.tsx";

type Difference = OperatorDifferences["items"][number];

export function Reconciliation({ overview }: { overview: OperatorOverview }): ReactNode {
  const nameOf = useNetworkNames();
  const [reading, setReading] = useState<string>();
  return (
    <Section
      flush
      title="Ledger and chain"
      hint="Every movement of money, compared with the chain."
    >
      <ul>
        {overview.reconciliation.map((of) => (
          <Row
            key={of.network}
            title={nameOf(of.network)}
            detail={
              of.asOfBlock === null ? (
                "Not compared yet"
              ) : (
                <>
                  Compared up to block {of.asOfBlock}
                  {of.headBlock !== null && ` of ${of.headBlock}`}, read <TimeAgo iso={of.readAt} />
                  {of.heldUntilBlock !== null && ` · payments wait for block ${of.heldUntilBlock}`}
                </>
              )
            }
          >
            {of.proven === true && <Badge color="green">Proven</Badge>}
            {of.proven === false && <Badge color="red">{of.open} open</Badge>}
            {of.asOfBlock !== null && (
              <Button
                size="xs"
                onClick={() => {
                  setReading(of.network);
                }}
              >
                Read again<span className="sr-only"> {nameOf(of.network)}</span>
              </Button>
            )}
          </Row>
        ))}
      </ul>
      {reading !== undefined && (
        <ReadAgain
          network={reading}
          onClose={() => {
            setReading(undefined);
          }}
        />
      )}
    </Section>
  );
}

export function Differences(): ReactNode {
  const nameOf = useNetworkNames();
  const query = useQuery(differencesQuery);
  const [closing, setClosing] = useState<Difference>();
  const { data } = query;
  return (
    <Section
      flush
      title="Differences"
      hint={data?.complete === false ? "There are more open ones than these." : undefined}
    >
      <QueryStatus query={query} what="differences" failed="Differences could not be loaded">
        <Skeleton shape="row" count={2} />
      </QueryStatus>
      {data?.items.length === 0 && <Nothing>No differences.</Nothing>}
      <ul>
        {data?.items.map((each) => (
          <Row
            key={`${each.network}${each.kind}${each.key}`}
            title={each.kind}
            detail={
              <>
                {each.meaning} · {nameOf(each.network)} · {each.key}
                {each.agentId !== null && ` · ${each.agentId}`} · seen <TimeAgo iso={each.seenAt} />
              </>
            }
          >
            {each.closedAt === null ? (
              <>
                <Badge color="red">Open</Badge>
                <Button
                  size="xs"
                  onClick={() => {
                    setClosing(each);
                  }}
                >
                  Close
                  <span className="sr-only">
                    {" "}
                    {each.kind} {each.key}
                  </span>
                </Button>
              </>
            ) : (
              <Badge color="green">Closed</Badge>
            )}
          </Row>
        ))}
      </ul>
      {closing && (
        <CloseDifference
          difference={closing}
          onClose={() => {
            setClosing(undefined);
          }}
        />
      )}
    </Section>
  );
}
