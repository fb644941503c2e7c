import { Badge } from "@mantine/core";
import type { ReactNode } from "react";
import { Note, Section } from "../../components/Layout.tsx";
import type { OperatorOverview } from "../../lib/wire.ts";
import { useNetworkNames } from "../../shared/info.ts";
import { Row } from "./Row.tsx";

/** One line when all is well; else what needs a person, each with its runbook. */
export function Attention({ overview }: { overview: OperatorOverview }): ReactNode {
  const nameOf = useNetworkNames();
  const { attention } = overview;
  if (attention.length === 0)
    return (
      <Note color="green">
        <strong>All well.</strong> Money moves, and nothing needs a person.
      </Note>
    );
  return (
    <Section flush title="Needs a person">
      <ul>
        {attention.map(({ level, network, problem, runbook }) => (
          <Row
            key={`${network ?? ""}${problem}`}
            title={problem}
            detail={
              <>
                {network !== null && `${nameOf(network)} · `}
                <a className="link-alone" href={`/docs/${runbook}`}>
                  What to do<span className="sr-only"> about: {problem}</span>
                </a>
              </>
            }
          >
            {level === "now" ? <Badge color="red">Now</Badge> : <Badge color="yellow">Soon</Badge>}
          </Row>
        ))}
      </ul>
    </Section>
  );
}
