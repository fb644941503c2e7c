import type { ReactNode } from "react";
import { LinkButton } from "../../components/Button.tsx";
import { PageHeader } from "../../components/PageHeader.tsx";

export default function NotFoundScreen(): ReactNode {
  return (
    <>
      <PageHeader
        title="Nothing is here"
        lead="The address may be mistyped, or what it named was removed."
      />
      <LinkButton to="/agents" variant="primary">
        Go to your agents
      </LinkButton>
    </>
  );
}
